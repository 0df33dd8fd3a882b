"""Payloads of Commands and Events: one closed Struct per kind, one module per family.

Command payloads are named for the Command (`MissionCreate`), Event payloads for the fact (`MissionCreated`). They
carry the normative documents of `contracts.documents` in full. `contracts.payloads.registry` maps kinds to Structs.
"""
