/* The arguments of this program: numbers and texts, each list with its length first.
 *
 * The spawner writes them. If they are malformed there is no channel for a report, so the program exits.
 */
#include "jail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char **words;

void begin_words(char **first)
{
    words = first;
}

char *next_word(void)
{
    if (!*words)
        _exit(1);
    return *words++;
}

int64_t next_number(void)
{
    char *end;
    errno = 0;
    const char *word = next_word();
    int64_t number = strtoll(word, &end, 10);
    if (errno || end == word || *end)
        _exit(1);
    return number;
}

int next_count(int most)
{
    int64_t count = next_number();
    if (count < 0 || count > most)
        _exit(1);
    return (int)count;
}

void end_words(void)
{
    if (*words)
        _exit(1);
}

/* -- a member ---------------------------------------------------------------------------------------- */

/* One list of its fields, read by a process that executes this program as an init, and written for that
 * process: `read` for the first; for the second a mark stands for each descriptor, which is sent with the
 * packet, because it has another number in the receiver. */
struct writing {
    char *at, *end;
    int *descriptors, count;
};

static void write_word(struct writing *writing, const char *word)
{
    size_t size = strlen(word) + 1;
    if (size > (size_t)(writing->end - writing->at))
        _exit(1);
    memcpy(writing->at, word, size);
    writing->at += size;
}

static void descriptor(struct writing *writing, int *field)
{
    if (!writing) {
        *field = (int)next_number();
    } else if (*field < 0) {
        write_word(writing, "-1");
    } else {
        if (writing->count == MAX_PASSED)
            _exit(1);
        writing->descriptors[writing->count++] = *field;
        write_word(writing, SENT_ALONG);
    }
}

static int64_t number(struct writing *writing, int64_t value)
{
    char digits[24];
    if (!writing)
        return next_number();
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    write_word(writing, digits);
    return value;
}

static void text(struct writing *writing, const char **field)
{
    if (writing)
        write_word(writing, *field);
    else
        *field = next_word();
}

static int count(struct writing *writing, int value, int most)
{
    return writing ? (int)number(writing, value) : next_count(most);
}

/* snippet_fork.py relies on the order up to the doors. */
static void member_words(struct writing *writing)
{
    descriptor(writing, &member.control);
    descriptor(writing, &member.trees);
    for (int at = 0; at < 3; at++)
        descriptor(writing, &member.streams[at]);
    descriptor(writing, &member.go);
    descriptor(writing, &member.spawner);
    descriptor(writing, &member.born_inside);
    member.door_count = count(writing, member.door_count, MAX_DOORS);
    for (int at = 0; at < member.door_count; at++)
        descriptor(writing, &member.doors[at]);
    descriptor(writing, &member.filter);
    member.abi = (int)number(writing, member.abi);
    member.uid = (uid_t)number(writing, member.uid);
    member.gid = (gid_t)number(writing, member.gid);
    member.rootless = (int)number(writing, member.rootless);
    member.steady = (int)number(writing, member.steady);
    member.scratch_bytes = (uint64_t)number(writing, (int64_t)member.scratch_bytes);
    descriptor(writing, &member.task_limit);
    member.limit_count = count(writing, member.limit_count, MAX_LIMITS);
    for (int at = 0; at < member.limit_count; at++) {
        descriptor(writing, &member.limits[at]);
        text(writing, &member.limit_texts[at]);
    }
    member.usage_count = count(writing, member.usage_count, MAX_USAGE);
    for (int at = 0; at < member.usage_count; at++)
        descriptor(writing, &member.usage[at]);
    text(writing, &member.group);
    member.folder_count = count(writing, member.folder_count, MAX_FOLDERS);
    for (int at = 0; at < member.folder_count; at++)
        descriptor(writing, &member.folders[at]);
}

void read_member(char **first)
{
    begin_words(first);
    member_words(NULL);
    descriptor(NULL, &member.rules);
    member.tool = (pid_t)next_number();
    descriptor(NULL, &member.channel);
    end_words();
}

size_t write_member(char *room, size_t size, int *descriptors, int *count)
{
    struct writing writing = {room, room + size, descriptors, 0};
    member_words(&writing);
    *count = writing.count;
    return (size_t)(writing.at - room);
}
