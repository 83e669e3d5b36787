/* Reads one request from stdin as the jail does and prints it, one field to a line; or why not. With an
 * argument it is what the opener is asked for; with two, the content of a file. */
#include "jail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct member member;

_Noreturn void fail(const char *reason, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s ", reason);
    vprintf(format, arguments);
    fflush(stdout);
    _exit(3);
}

_Noreturn void fail_errno(const char *what, ...)
{
    fail("errno", "%s %s", what, strerror(errno));
}

static void show(const char *name, const void *bytes, size_t size)
{
    printf("%s ", name);
    for (size_t at = 0; at < size; at++)
        printf("%02x", ((const unsigned char *)bytes)[at]);
    printf("\n");
}

static void words(const char *name, const char *text)
{
    show(name, text, strlen(text));
}

#define NUMBER(name) printf(#name " %llu\n", (unsigned long long)request->name)
#define WORDS(name) for (uint32_t at = 0; at < request->name##_count; at++) words(#name, request->name[at])

static void grants(const struct grant *grants, uint32_t count)
{
    for (uint32_t at = 0; at < count; at++) {
        words("grants", grants[at].path);
        printf("%d %llu %llu\n", grants[at].write, (unsigned long long)grants[at].device,
               (unsigned long long)grants[at].inode);
        words("layers", grants[at].layers);
        words("source", grants[at].source);
    }
}

/* Twice: a server of many must have released the first. */
static void openings(const unsigned char *packet, size_t size, int in_file)
{
    for (int round = 0; round < 2; round++) {
        static const unsigned char elsewhere[] = {'F'};
        int file = memfd_create("openings", 0), others;
        if (in_file && write(file, packet, size) != (ssize_t)size)
            _exit(1);
        const struct openings *found = in_file ? open_openings(elsewhere, 1, &file, 1, &others)
                                               : open_openings(packet, size, NULL, 0, &others);
        printf("%llu %llu %d\n", (unsigned long long)found->owner_uid,
               (unsigned long long)found->owner_gid, others);
        grants(found->grants, found->grants_count);
        close_openings();
    }
}

int main(int argc, char **argv)
{
    (void)argv;
    static char input[1 << 20];
    size_t size = fread(input, 1, sizeof input, stdin);
    /* In memory of its own, exactly as long: a reader that goes one byte beyond is found out. */
    unsigned char *packet = malloc(size);
    memcpy(packet, input, size);
    int others;
    if (argc > 1) {
        openings(packet, size, argc > 2);
        free(packet);
        return 0;
    }
    const struct request *request = open_request(packet, size, NULL, 0, &others);
    for (const char *const *each = request->argv; *each; each++)
        words("argv", *each);
    for (const char *const *each = request->environment; *each; each++)
        words("environment", *each);
    words("executable", request->executable);
    NUMBER(executable_device);
    NUMBER(executable_inode);
    words("working_directory", request->working_directory);
    for (uint32_t at = 0; at < request->secrets_count; at++)
        show("secrets", request->secrets[at].content, request->secrets[at].size);
    grants(request->grants, request->grants_count);
    WORDS(protect);
    WORDS(deny);
    WORDS(limits);
    NUMBER(scratch_bytes);
    NUMBER(artifacts_bytes);
    NUMBER(max_children);
    for (uint32_t at = 0; at < request->etc_count; at++) {
        words("etc", request->etc[at].name);
        words("etc", request->etc[at].text);
    }
    WORDS(addresses);
    for (uint32_t at = 0; at < request->listen_count; at++) {
        words("listen", request->listen[at].address);
        printf("%d\n", request->listen[at].port);
    }
    for (uint32_t at = 0; at < request->provided_count; at++) {
        words("provided", request->provided[at].name);
        show("provided", request->provided[at].content, request->provided[at].size);
    }
    words("resolver", request->resolver);
    /* And a report of the same bytes, as a JSON text. */
    static struct text text;
    put_string(&text, input, size > 4096 ? 4096 : size);
    fwrite(text.room, 1, text.length, stdout);
}
