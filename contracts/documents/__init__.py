"""The normative documents of MissionWeaveProtocol 0.1: one closed Struct per JSON Schema, one module per kind.

A Struct accepts and refuses exactly what its schema accepts and refuses (TRU-1, stage `schema`), given JSON from
the strict parser, in which every integral number is an `int`. Nothing is re-exported here: import from the module
of the kind. `contracts.documents.schemas` maps schema names to Structs, `contracts.document_kinds` says who signs what.
"""
