"""What can go wrong with the embedded stack, said so that a person can act on it."""

from ops.command_fault import CommandFault


class EmbeddedFault(CommandFault):
    """The message names what failed, the value that it failed on, and the remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        """State what failed, and what to do."""
        super().__init__(f"{what}. {remedy}")
        self.what = what
        self.remedy = remedy
