"""Who answers for something and why, as people write it on the command line: `WHO: WHY`."""

from typing import Final

from ops.command_fault import UsageFault

who_and_why_characters_max: Final = 1_000
"""Characters of both together."""


def who_and_why(option: str, text: str, example: str) -> tuple[str, str]:
    """Who and why. Raises UsageFault, which names the option."""
    who, _, why = (part.strip() for part in text.partition(": "))
    if not (who and why) or len(text) > who_and_why_characters_max or not text.isprintable():
        raise UsageFault(
            f'{option} takes "WHO: WHY" in one line of at most {who_and_why_characters_max} characters, such '
            f'as "{example}"'
        )
    return who, why
