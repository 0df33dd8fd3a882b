-- Nobody replaces the edition before this transaction ends.
SELECT edition FROM projection_edition FOR SHARE
