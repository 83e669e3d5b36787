/* Feeds spoilt packets to the readers of sandbox/jail (wire.c, words.c), watched by the compiler's
 * sanitizers: mutate_wire CORPUS SEED COUNT.
 *
 * The corpus is a file of packets as wire.py makes them: a kind (one letter), a length (32 bits), the
 * bytes. Every case is a function of SEED and its number. A packet that was not spoilt must be accepted,
 * or refused if its letter is a small one. What is accepted is written again from what was read, and
 * must come out as it went in.
 *
 * Compiled with `_exit`, `mmap` and `munmap` renamed to the functions below: a reader that gives up comes
 * back here, and what it maps is memory that ends where its content ends.
 */
#include "jail.h"

#include <ctype.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void __sanitizer_set_death_callback(void (*)(void));

struct member member;

enum { REQUEST = 'R', TREES = 'T', ORDER = 'M', PORTS = 'L', WORDS = 'W', TEXT = 'S' };
enum { LONGEST = 1 << 18, MAX_WORDS = 4096 };

struct bytes { unsigned char *at; size_t size; };
struct entry { char kind; struct bytes packet; };

static struct entry *corpus;
static size_t entries;
static uint64_t chance, number_of_case;
static char kind_of_case;
static unsigned char spoilt[LONGEST];
static size_t spoilt_size;
static jmp_buf refused;
static unsigned long long accepted_count, refused_count;

static void tell_case(void)
{
    fprintf(stderr, "case %llu, kind %c, %zu bytes:", (unsigned long long)number_of_case, kind_of_case,
            spoilt_size);
    for (size_t at = 0; at < spoilt_size && at < 2048; at++)
        fprintf(stderr, " %02x", spoilt[at]);
    fprintf(stderr, "\n");
}

static _Noreturn void wrong(const char *what)
{
    fprintf(stderr, "%s\n", what);
    tell_case();
    exit(1);
}

/* -- what the readers call -------------------------------------------------------------------------- */

_Noreturn void leave(int code)
{
    longjmp(refused, code ? code : 1);
}

_Noreturn void fail(const char *reason, const char *format, ...)
{
    (void)reason, (void)format;
    longjmp(refused, 1);
}

_Noreturn void fail_errno(const char *what, ...)
{
    (void)what;
    longjmp(refused, 1);
}

static void *mapped[8];
static int mapped_count;

void *watched_mmap(void *where, size_t size, int protection, int flags, int file, off_t offset)
{
    (void)where, (void)protection, (void)offset;
    if (size == 0 || mapped_count == 8) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    unsigned char *room = calloc(1, size);
    if (!room || (!(flags & MAP_ANONYMOUS) && pread(file, room, size, 0) != (ssize_t)size))
        wrong("no memory");
    return mapped[mapped_count++] = room;
}

int watched_munmap(void *room, size_t size)
{
    (void)size;
    for (int at = 0; at < mapped_count; at++)
        if (mapped[at] == room)
            mapped[at] = NULL;
    free(room);
    return 0;
}

static void unmap_all(void)
{
    while (mapped_count)
        free(mapped[--mapped_count]);
}

/* -- writing again what was read -------------------------------------------------------------------- */

static unsigned char again[2 * LONGEST];
static size_t again_size;

static void put_bytes(const void *bytes, size_t size)
{
    if (size > sizeof again - again_size)
        wrong("more was read than there is");
    if (size)
        memcpy(again + again_size, bytes, size);
    again_size += size;
}

static void put_length(size_t size)
{
    uint32_t value = (uint32_t)size;
    put_bytes(&value, sizeof value);
}

static void put_long(uint64_t value)
{
    put_bytes(&value, sizeof value);
}

static void put_content(const void *content, size_t size)
{
    put_length(size);
    put_bytes(content, size);
    put_bytes("", 1);
}

static void put_line(const char *text)
{
    put_content(text, strlen(text));
}

static void put_lines(const char *const *lines, size_t count)
{
    put_length(count);
    for (size_t at = 0; at < count; at++)
        put_line(lines[at]);
}

static size_t ended(const char *const *lines)
{
    size_t count = 0;
    while (lines[count])
        count++;
    return count;
}

/* Any number but 0 means yes: what stood there is written again, if it means the same. */
static void put_yes(int yes, const unsigned char *packet)
{
    uint64_t stood;
    memcpy(&stood, packet + again_size, sizeof stood);
    if ((stood != 0) != (yes != 0))
        wrong("a yes was read as a no");
    put_long(stood);
}

static void put_grants(const struct grant *grants, uint32_t count, const unsigned char *packet)
{
    put_length(count);
    for (uint32_t at = 0; at < count; at++) {
        put_line(grants[at].path);
        put_yes(grants[at].write, packet);
        put_long(grants[at].device);
        put_long(grants[at].inode);
        put_line(grants[at].layers);
    }
}

static void put_files(const struct file *files, uint32_t count, int named)
{
    put_length(count);
    for (uint32_t at = 0; at < count; at++) {
        if (named)
            put_line(files[at].name);
        put_content(files[at].content, files[at].size);
    }
}

static void write_request(const struct request *request, const unsigned char *packet)
{
    put_lines(request->argv, ended(request->argv));
    put_lines(request->environment, ended(request->environment));
    put_line(request->executable);
    put_long(request->executable_device);
    put_long(request->executable_inode);
    put_line(request->working_directory);
    put_files(request->secrets, request->secrets_count, 0);
    put_grants(request->grants, request->grants_count, packet);
    put_lines(request->protect, request->protect_count);
    put_lines(request->deny, request->deny_count);
    put_lines(request->limits, request->limits_count);
    put_long(request->scratch_bytes);
    put_long(request->artifacts_bytes);
    put_long(request->max_children);
    put_length(request->etc_count);
    for (uint32_t at = 0; at < request->etc_count; at++) {
        put_line(request->etc[at].name);
        put_line(request->etc[at].text);
    }
    put_lines(request->addresses, request->addresses_count);
    put_length(request->listen_count);
    for (uint32_t at = 0; at < request->listen_count; at++) {
        put_line(request->listen[at].address);
        put_long(request->listen[at].port);
    }
    put_files(request->provided, request->provided_count, 1);
    put_line(request->resolver);
}

/* -- one case ------------------------------------------------------------------------------------- */

static uint64_t next(void)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance;
}

static size_t below(size_t most)
{
    return most ? (size_t)(next() % most) : 0;
}

static void cut(size_t at, size_t size)
{
    memmove(spoilt + at, spoilt + at + size, spoilt_size - at - size);
    spoilt_size -= size;
}

static void insert(size_t at, const unsigned char *bytes, size_t size)
{
    if (size > LONGEST - spoilt_size)
        return;
    memmove(spoilt + at + size, spoilt + at, spoilt_size - at);
    memmove(spoilt + at, bytes, size);
    spoilt_size += size;
}

/* A length or a number that is at some bound. */
static void overwrite(void)
{
    const uint64_t bounds[] = {0, 1, 5, spoilt_size, spoilt_size / 5, spoilt_size / 5 + 1, MAX_INLINE,
                               MAX_PACKET, MAX_PASSED, MAX_PASSED + 1, UINT16_MAX, UINT16_MAX + 1u,
                               INT32_MAX, UINT32_MAX, UINT32_MAX - 1, INT64_MAX, UINT64_MAX, 1ull << 63};
    uint64_t value = bounds[below(sizeof bounds / sizeof *bounds)] + below(3) - 1;
    size_t size = below(2) ? 4 : 8;
    if (spoilt_size >= size)
        memcpy(spoilt + below(spoilt_size - size + 1), &value, size);
}

static void spoil(void)
{
    static unsigned char other[LONGEST];
    const struct bytes *source = &corpus[below(entries)].packet;
    size_t at = below(spoilt_size), size = below(below(4) ? 16 : 4096);
    switch (below(8)) {
    case 0:
        if (spoilt_size)
            spoilt[at] ^= (unsigned char)(1u << below(8));
        break;
    case 1:
        if (spoilt_size)
            spoilt[at] = (unsigned char)next();
        break;
    case 2:
        cut(at, size > spoilt_size - at ? spoilt_size - at : size);
        break;
    case 3:
        spoilt_size = at;
        break;
    case 4: /* of itself, once more */
        size = size > spoilt_size - at ? spoilt_size - at : size;
        memcpy(other, spoilt + at, size);
        insert(below(spoilt_size + 1), other, size);
        break;
    case 5: /* of another */
        at = below(source->size);
        insert(below(spoilt_size + 1), source->at + at,
               size > source->size - at ? source->size - at : size);
        break;
    default:
        overwrite();
    }
}

static int file_of(const void *content, size_t size)
{
    int file = memfd_create("packet", 0);
    if (file < 0 || write(file, content, size) != (ssize_t)size)
        wrong("no file");
    return file;
}

/* In memory of its own, exactly as long: a reader that goes one byte beyond is found out. */
static unsigned char *packet_of(int prefix)
{
    size_t before = prefix ? 1 : 0;
    unsigned char *packet = malloc(spoilt_size + before ? spoilt_size + before : 1);
    if (!packet)
        wrong("no memory");
    if (prefix)
        packet[0] = (unsigned char)prefix;
    memcpy(packet + before, spoilt, spoilt_size);
    return packet;
}

static int read_words(void)
{
    static char *words[MAX_WORDS + 1], copy[LONGEST + 1], room[LONGEST];
    int count = 0, descriptors[MAX_PASSED], passed;
    memcpy(copy, spoilt, spoilt_size);
    copy[spoilt_size] = 0;
    for (char *word = copy; word < copy + spoilt_size && count < MAX_WORDS; word += strlen(word) + 1)
        words[count++] = word;
    words[count] = NULL;
    read_member(words);
    const int counts[][2] = {{member.door_count, MAX_DOORS}, {member.limit_count, MAX_LIMITS},
                             {member.usage_count, MAX_USAGE}, {member.folder_count, MAX_FOLDERS}};
    for (size_t at = 0; at < sizeof counts / sizeof *counts; at++)
        if (counts[at][0] < 0 || counts[at][0] > counts[at][1])
            return 0;
    write_member(room, sizeof room, descriptors, &passed);
    return passed <= MAX_PASSED;
}

static void require_same(void)
{
    if (again_size != spoilt_size || memcmp(again, spoilt, again_size))
        wrong("it was read as something else");
}

static void read_case(unsigned char **packet, int *file)
{
    static const unsigned char elsewhere[] = {'F'};
    static struct text text;
    uint16_t ports[MAX_PASSED];
    int others, count, in_file = below(2) || spoilt_size >= MAX_PACKET;
    switch (kind_of_case) {
    case REQUEST:
    case TREES:
        if (in_file)
            *file = file_of(spoilt, spoilt_size);
        *packet = in_file ? NULL : packet_of('J');
        if (kind_of_case == REQUEST) {
            write_request(in_file ? open_request(elsewhere, 1, file, 1, &others)
                                  : open_request(*packet, spoilt_size + 1, NULL, 0, &others), spoilt);
        } else {
            const struct openings *found = in_file ? open_openings(elsewhere, 1, file, 1, &others)
                                                   : open_openings(*packet, spoilt_size + 1, NULL, 0, &others);
            put_long(found->owner_uid);
            put_long(found->owner_gid);
            put_grants(found->grants, found->grants_count, spoilt);
        }
        require_same();
        break;
    case ORDER: {
        *packet = packet_of(0);
        const struct order *order = read_order(*packet, spoilt_size);
        put_bytes("M", 1);
        put_yes(order->allow_fork, spoilt);
        put_yes(order->steady, spoilt);
        put_yes(order->interpreter, spoilt);
        put_long(order->scratch_bytes);
        put_lines(order->limits, order->limits_count);
        require_same();
        break;
    }
    case PORTS: {
        *packet = packet_of(0);
        const char *address = read_listen_order(*packet, spoilt_size, ports, MAX_PASSED, &count);
        if (!address)
            longjmp(refused, 1);
        put_bytes("L", 1);
        put_line(address);
        put_length((size_t)count);
        for (int at = 0; at < count; at++)
            put_long(ports[at]);
        require_same();
        break;
    }
    case WORDS:
        if (!read_words())
            wrong("more of something than there is room for");
        break;
    case TEXT:
        text.length = 0;
        *packet = packet_of(0);
        put_string(&text, (const char *)*packet, spoilt_size);
        break;
    default:
        wrong("no such kind");
    }
}

static void one_case(uint64_t seed, uint64_t number)
{
    static unsigned char *packet;
    static int file;
    packet = NULL, file = -1;
    number_of_case = number;
    chance = (seed + number * 0x9E3779B97F4A7C15ull) | 1;
    next(), next();
    const struct entry *entry = &corpus[number < entries ? number : below(entries)];
    kind_of_case = (char)toupper(entry->kind);
    spoilt_size = entry->packet.size;
    memcpy(spoilt, entry->packet.at, spoilt_size);
    int whole = number < entries, good = isupper(entry->kind);
    for (size_t left = whole ? 0 : 1 + below(6); left; left--)
        spoil();
    again_size = 0;
    if (setjmp(refused) == 0) {
        read_case(&packet, &file);
        accepted_count++;
        if (whole && !good)
            wrong("a packet that is too long was accepted");
    } else {
        refused_count++;
        if (whole && good)
            wrong("a packet that is as it must be was refused");
    }
    close_openings();
    unmap_all();
    free(packet);
    if (file >= 0)
        close(file); /* unless its reader has closed it */
}

static void load(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        wrong("no corpus");
    for (int kind; (kind = fgetc(file)) != EOF; entries++) {
        uint32_t size;
        corpus = realloc(corpus, (entries + 1) * sizeof *corpus);
        if (!corpus || fread(&size, sizeof size, 1, file) != 1 || size > LONGEST)
            wrong("a corpus that cannot be read");
        struct entry entry = {(char)kind, {malloc(size ? size : 1), size}};
        if (!entry.packet.at || fread(entry.packet.at, 1, size, file) != size)
            wrong("a corpus that ends too early");
        corpus[entries] = entry;
    }
    fclose(file);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    load(argv[1]);
    uint64_t seed = strtoull(argv[2], NULL, 10), count = strtoull(argv[3], NULL, 10);
    __sanitizer_set_death_callback(tell_case);
    for (uint64_t number = 0; number < count; number++)
        one_case(seed, number);
    printf("%llu %llu\n", accepted_count, refused_count);
    return 0;
}
