"""What the log holds is what was signed, and database and contracts agree on names."""

import secrets

from contracts.bounds import event_bytes_max
from contracts.document_kinds import DocumentKind
from contracts.identifiers import token
from contracts.verification import RegisteredKey, Verified, verify_document
from services.process.database import connect
from tests.builders import build_history, insert_history, plant_organization, signing_key, test_group, test_organization

authority = signing_key("authority", "service")
awkward = "U+0000 \0, \u2028, \U0001f600, \ue000, \x7f, é"


class AuthorityKey:
    def resolve(self, key_id: str) -> RegisteredKey | None:
        return RegisteredKey(
            key_id=key_id,
            principal=authority.principal,
            public_key=authority.public_key,
            valid_from="2026-01-01T00:00:00Z",
        )


async def test_an_event_comes_back_byte_for_byte(database_url: str) -> None:
    """ACC-5: U+0000, floats and any text are stored and returned as signed, and still verify."""
    history = build_history(
        test_organization,
        test_group,
        3,
        authority,
        payload=lambda n: {"text": awkward, "n": [1.5, 1e21, 2**53, 5e-324]},
    )
    async with await connect(database_url, name="test") as connection:
        await plant_organization(connection)
        await insert_history(connection, 1, history, first_position=11)
        cursor = await connection.execute("SELECT position, event, subject FROM outbox ORDER BY position", binary=True)
        rows = await cursor.fetchall()
    assert [(position, bytes(event)) for position, event, _ in rows] == [
        (11 + place, built.raw) for place, built in enumerate(history)
    ]
    for _, event, _ in rows:
        assert isinstance(verify_document(DocumentKind.EVENT, bytes(event), AuthorityKey(), event_bytes_max), Verified)


async def test_the_database_makes_the_same_tokens(database_url: str) -> None:
    """OBX-1: `subject_token` in SQL is `identifiers.token` in Python, also for text beyond ASCII."""
    identifiers = [test_group, "", "urn:x:é😀\ue000", *(f"urn:x:{secrets.token_urlsafe(40)}" for _ in range(20))]
    async with await connect(database_url, name="test") as connection:
        cursor = await connection.execute("SELECT subject_token(i) FROM unnest(%s::text[]) i", (identifiers,))
        assert [row[0] for row in await cursor.fetchall()] == [token(identifier) for identifier in identifiers]
