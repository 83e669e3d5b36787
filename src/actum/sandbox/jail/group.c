/* Control groups, from inside: the files of this sandbox's groups are open since it was made. The recipe
 * defines the files and their content (cgroup_v1.py, cgroup_v2.py). */
#include "jail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int are_set;

static int stand_there(const char *const *texts)
{
    for (int at = 0; at < member.limit_count; at++)
        if (strcmp(texts[at], member.limit_texts[at]) != 0)
            return 0;
    return 1;
}

void limit_group(const char *const *texts, uint32_t count)
{
    if (count != (uint32_t)member.limit_count)
        fail("SANDBOX_UNAVAILABLE", "%u limits were given for %d files", count, member.limit_count);
    if (are_set && stand_there(texts))
        return;
    /* All of them, in order: a limit may depend on another that was written before it. */
    for (int at = 0; at < member.limit_count; at++) {
        if (pwrite(member.limits[at], texts[at], strlen(texts[at]), 0) < 0)
            fail_errno(NULL);
        member.limit_texts[at] = texts[at];
    }
    are_set = 1;
}

void put_usage(struct text *text)
{
    static char content[FILE_BYTES];
    put(text, "[");
    for (int at = 0; at < member.usage_count; at++) {
        ssize_t size = pread(member.usage[at], content, sizeof content, 0);
        if (size < 0)
            _exit(1); /* no counters, no report: the host treats it as the sandbox's death */
        put(text, at ? ", " : "");
        put_string(text, content, (size_t)size);
    }
    put(text, "]");
}

/* Of a group of our own, which counts from 0. Both versions have a line "oom_kill N". */
int counts_oom_kill(void)
{
    static char content[FILE_BYTES];
    static const char NAME[] = "oom_kill ";
    ssize_t size = pread(member.usage[0], content, sizeof content - 1, 0);
    if (size < 0)
        _exit(1);
    content[size] = 0;
    for (const char *line = content; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, NAME, sizeof NAME - 1) == 0)
            return line[sizeof NAME - 1] != '0';
        if (!*line)
            break;
    }
    return 0;
}

/* Removes the groups from `at` down to `last`, which are empty. Returns whether all were removed. The host
 * finds those that were not, and removes or reports them: so errors are ignored. */
int remove_groups(int at, int last)
{
    char path[NAME_ROOM];
    int all = 1;
    if (snprintf(path, sizeof path, "../%s", member.group) >= (int)sizeof path)
        return 0;
    for (; at >= last; at--)
        all &= unlinkat(member.folders[at], path, AT_REMOVEDIR) == 0;
    return all;
}
