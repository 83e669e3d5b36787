# ends: FAILED EXECUTOR_EXCEPTION


def execute(req):
    import subprocess

    return subprocess.run(["id"]).returncode
