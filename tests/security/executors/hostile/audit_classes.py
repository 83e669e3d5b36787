# ends: SUCCESS
# value: []


def execute(req):
    classes = [object]
    for each in classes:
        classes += [one for one in type.__subclasses__(each) if one not in classes]
    wanted = ("Journal", "Log", "Page", "Database", "Connection", "Signer", "Registry", "Pipeline")
    return sorted(one.__name__ for one in classes if one.__name__ in wanted)
