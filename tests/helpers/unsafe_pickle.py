"""What a pickle file may do to those who load it."""


class Payload:
    """What a pickle file may hold: a call of any function."""

    def __init__(self, function=print):
        self.function = function

    def __reduce__(self):
        return (self.function, ("the payload ran",))
