# ends: SUCCESS
# value: 1

SEEN = []


def execute(req):
    SEEN.append(1)
    return len(SEEN)
