# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    text = "x" * (1 << 20)
    while True:
        text += text
