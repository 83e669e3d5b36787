# ends: SUCCESS
# value: "bounded"


def execute(req):
    try:
        bytearray(10**10)
    except MemoryError:
        return "bounded"
