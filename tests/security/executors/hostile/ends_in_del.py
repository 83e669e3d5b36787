# ends: SUCCESS
# value: "survived"


class Trap:
    def __del__(self):
        raise SystemExit(3)


def execute(req):
    Trap()
    return "survived"
