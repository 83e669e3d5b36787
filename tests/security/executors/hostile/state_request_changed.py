# ends: SUCCESS
# value: ["more", "password", "text"]


def execute(req):
    req.payload["text"] = "changed"
    req.payload["more"] = [1]
    return sorted(req.payload)
