UPDATE projection_edition SET edition = :edition
