# ends: FAILED OUTPUT_INVALID


class Lie(str):
    def encode(self, *_):
        return b"lies"


def execute(req):
    return Lie("x")
