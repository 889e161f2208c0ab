"""What a user did wrong, said in one sentence."""


class BadInput(ValueError):
    """Input we cannot work with. The message says what is wrong and what to do about it.

    Commands print it on one line and exit with code 2; libraries let it through.
    """
