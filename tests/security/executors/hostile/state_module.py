# ends: FAILED OUTPUT_INVALID

import json


def execute(req):
    json.loads = json.dumps = None
    return ["the only one harmed is itself"]
