// Makes a file operation below the watched folders fail, preloaded into a command and the programs that it starts.
//
// All processes of a command share one counter of the operations that the error applies to. The operation number
// `fail_at`, and with `sticky` every later one, returns -1 with errno = `error`. Reading the counter after a run
// without a fault gives the number of faults to inject.
//
// K8SDDS_FAULT_STATE: file with `struct state`. K8SDDS_FAULT_FOLDER: the watched folder, an absolute path.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, OPEN_TO_WRITE = 2, CREATE = 4, WRITE = 8, REMOVE = 16, STATUS = 32, LIST = 64, READ = 128 };

enum { KINDS = 8 };

struct state {
    atomic_long calls;  // to which the error applies
    atomic_long calls_of_kind[KINDS];
    long fail_at;  // counted from 1; 0: never
    int error;
    int kinds;  // operations that the error applies to
    int sticky;
};

static struct state* state;
static char folder[PATH_MAX];

__attribute__((constructor)) static void start(void) {
    const char* file = getenv("K8SDDS_FAULT_STATE");
    const char* watched = getenv("K8SDDS_FAULT_FOLDER");
    if (!file || !watched || strlen(watched) >= sizeof folder) return;
    strcpy(folder, watched);
    const int fd = open(file, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    void* mapped = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) state = mapped;
}

static int is_inside(const char* path) {
    const size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int fd_is_inside(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    return is_inside(path);
}

static int path_is_inside(int at, const char* path) {
    if (!path) return 0;
    if (path[0] == '/') return is_inside(path);
    if (at != AT_FDCWD) return fd_is_inside(at);
    char here[PATH_MAX];
    return getcwd(here, sizeof here) && is_inside(here);
}

static int fails(int kind, int inside) {
    if (!state || !inside) return 0;
    atomic_fetch_add(&state->calls_of_kind[__builtin_ctz(kind)], 1);
    if (!(state->kinds & kind)) return 0;
    const long call = atomic_fetch_add(&state->calls, 1) + 1;
    if (!state->fail_at || (state->sticky ? call < state->fail_at : call != state->fail_at)) return 0;
    errno = state->error;
    return 1;
}

static int kind_of_open(int flags) {
    if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) return CREATE;
    return (flags & O_ACCMODE) == O_RDONLY ? OPEN : OPEN_TO_WRITE;
}

#define REAL(name) __typeof__(name)* real = (__typeof__(name)*)dlsym(RTLD_NEXT, #name)
#define MODE(flags, last)                                            \
    mode_t mode = 0;                                                 \
    if ((flags) & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) {          \
        va_list rest;                                                \
        va_start(rest, last);                                        \
        mode = va_arg(rest, mode_t);                                 \
        va_end(rest);                                                \
    }

#define DEFINE_OPEN(name)                                                                   \
    int name(const char* path, int flags, ...) {                                            \
        MODE(flags, flags)                                                                  \
        if (fails(kind_of_open(flags), path_is_inside(AT_FDCWD, path))) return -1;          \
        REAL(name);                                                                         \
        return real(path, flags, mode);                                                     \
    }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_OPENAT(name)                                                                 \
    int name(int at, const char* path, int flags, ...) {                                    \
        MODE(flags, flags)                                                                  \
        if (fails(kind_of_open(flags), path_is_inside(at, path))) return -1;                \
        REAL(name);                                                                         \
        return real(at, path, flags, mode);                                                 \
    }
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

#define DEFINE(kind, inside, type, failure, name, parameters, arguments) \
    type name parameters {                                               \
        if (fails(kind, inside)) return failure;                         \
        REAL(name);                                                      \
        return real arguments;                                           \
    }
#define HERE(path) path_is_inside(AT_FDCWD, path)

DEFINE(CREATE, HERE(path), int, -1, mkdir, (const char* path, mode_t mode), (path, mode))
DEFINE(CREATE, path_is_inside(at, path), int, -1, mkdirat, (int at, const char* path, mode_t mode), (at, path, mode))
DEFINE(CREATE, HERE(to), int, -1, rename, (const char* from, const char* to), (from, to))
DEFINE(CREATE, path_is_inside(b, to), int, -1, renameat, (int a, const char* from, int b, const char* to),
       (a, from, b, to))
DEFINE(CREATE, HERE(to), int, -1, link, (const char* from, const char* to), (from, to))
DEFINE(CREATE, path_is_inside(b, to), int, -1, linkat, (int a, const char* from, int b, const char* to, int flags),
       (a, from, b, to, flags))
DEFINE(REMOVE, HERE(path), int, -1, unlink, (const char* path), (path))
DEFINE(REMOVE, path_is_inside(at, path), int, -1, unlinkat, (int at, const char* path, int flags), (at, path, flags))
DEFINE(REMOVE, HERE(path), int, -1, rmdir, (const char* path), (path))
DEFINE(WRITE, fd_is_inside(fd), ssize_t, -1, write, (int fd, const void* data, size_t size), (fd, data, size))
DEFINE(WRITE, fd_is_inside(fd), ssize_t, -1, writev, (int fd, const struct iovec* data, int count), (fd, data, count))
DEFINE(WRITE, fd_is_inside(fd), int, -1, fsync, (int fd), (fd))
DEFINE(WRITE, fd_is_inside(fd), int, -1, fdatasync, (int fd), (fd))
DEFINE(READ, fd_is_inside(fd), ssize_t, -1, read, (int fd, void* data, size_t size), (fd, data, size))
DEFINE(READ, fd_is_inside(fd), ssize_t, -1, pread64, (int fd, void* data, size_t size, off64_t at), (fd, data, size, at))
DEFINE(STATUS, HERE(path), int, -1, stat64, (const char* path, struct stat64* to), (path, to))
DEFINE(STATUS, HERE(path), int, -1, lstat64, (const char* path, struct stat64* to), (path, to))
DEFINE(STATUS, path_is_inside(at, path), int, -1, fstatat64,
       (int at, const char* path, struct stat64* to, int flags), (at, path, to, flags))
DEFINE(LIST, HERE(path), DIR*, NULL, opendir, (const char* path), (path))
DEFINE(LIST, fd_is_inside(fd), DIR*, NULL, fdopendir, (int fd), (fd))
