"""The one exception for bad input, understood by every floor and turned into exit status 2 by the command line."""


class InputError(ValueError):
    """Bad input from the user: the message is one clear line that names the thing, the value and the remedy."""
