# ends: BLOCKED POLICY_VIOLATION


def execute(req):
    classes = [object]
    for each in classes:
        classes += [one for one in type.__subclasses__(each) if one not in classes]
    cast = next(one for one in classes if one.__name__ == "Filter").install.__globals__
    cast["kernel"].clone_sibling()
