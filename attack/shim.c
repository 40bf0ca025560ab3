/* Counts, logs, cuts and refuses the file-system calls of a process; loaded with LD_PRELOAD (see shim.py).
 *
 * Only calls that change something below one folder count: opens for writing, writes, truncations, fsyncs, renames,
 * unlinks, mkdirs and rmdirs. The process kills itself with SIGKILL in place of the k-th of them, or that one fails with
 * ENOSPC, alone or with all that come later: a full disk refuses all but what removes something. Where it is torn, the
 * first half of a write is done before. With a log, every call is written down with its data, for the replay of power cuts.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[PATH_MAX]; /* calls at and below it count; empty: none do */
static size_t folder_length;
static long counted, kill_at;
static int torn, log_fd = -1;
enum { KILLED, FAILS_ONCE, FULL } end_of_disk; /* what happens at call kill_at */

void shim_arm(const char *below, long k, int half, const char *log, int how) {
    counted = 0;
    kill_at = k;
    torn = half;
    end_of_disk = how;
    log_fd = log == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    folder_length = strlen(below);
    memcpy(folder, below, folder_length + 1);
}

long shim_counted(void) { return counted; }

static int is_below(const char *path) {
    return folder_length > 0 && strncmp(path, folder, folder_length) == 0 &&
           (path[folder_length] == '/' || path[folder_length] == '\0');
}

static int of_descriptor(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0) return 0;
    path[n] = '\0';
    return is_below(path);
}

static int of_name(int at, const char *name, char *path) {
    if (folder_length == 0 || name == NULL) return 0;
    size_t n = 0;
    if (name[0] != '/') {
        if (at == AT_FDCWD) {
            if (getcwd(path, PATH_MAX) == NULL) return 0;
        } else {
            of_descriptor(at, path);
        }
        n = strlen(path);
        path[n++] = '/';
    }
    if (n + strlen(name) >= PATH_MAX) return 0;
    strcpy(path + n, name);
    return is_below(path);
}

/* One entry of the log: kind, number of the file, offset or length, length of the text, text, length of the data, data. */
static void note(char kind, uint64_t file, uint64_t number, const char *text, const void *data, size_t length) {
    if (log_fd < 0) return;
    uint64_t head[4] = {file, number, text == NULL ? 0 : strlen(text), length};
    struct iovec parts[4] = {{&kind, 1}, {head, sizeof head}, {(void *)text, head[2]}, {(void *)data, length}};
    if (syscall(SYS_writev, log_fd, parts, 4) != (ssize_t)(1 + sizeof head + head[2] + length)) abort();
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Counts a call, and returns whether it is the one that is cut or refused. */
static int is_last(void) {
    counted++;
    return counted == kill_at || (end_of_disk == FULL && kill_at > 0 && counted > kill_at);
}

/* Counts a call that needs room: dies in place of it, or returns whether it is refused. */
static int refused(void) {
    if (!is_last()) return 0;
    if (end_of_disk == KILLED) die();
    errno = ENOSPC;
    return 1;
}

/* Counts a call that needs no room. */
static void count(void) {
    if (is_last() && end_of_disk == KILLED) die();
}

static uint64_t number_of(int fd) {
    struct stat about;
    return fstat(fd, &about) == 0 ? (uint64_t)about.st_ino : 0;
}

static int opened(int at, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int writes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) && !(flags & O_DIRECTORY) && of_name(at, name, path);
    struct stat about;
    int existed = writes && stat(path, &about) == 0;
    if (writes) {
        if (existed || !(flags & O_CREAT)) count();
        else if (refused()) return -1;
    }
    int fd = (int)syscall(SYS_openat, at, name, flags, mode);
    if (writes && fd >= 0) {
        int error = errno;
        if (!existed) note('c', number_of(fd), 0, path, NULL, 0);
        else if (flags & O_TRUNC) note('t', number_of(fd), 0, path, NULL, 0);
        errno = error;
    }
    return fd;
}

#define MODE(last)                     \
    mode_t mode = 0;                   \
    if (last & (O_CREAT | O_TMPFILE)) { \
        va_list rest;                  \
        va_start(rest, last);          \
        mode = va_arg(rest, mode_t);   \
        va_end(rest);                  \
    }

int open(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE(flags) return opened(AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE(flags) return opened(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE(flags) return opened(at, name, flags, mode); }
int __open_2(const char *name, int flags) { return opened(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return opened(AT_FDCWD, name, flags, 0); }

static ssize_t written(int fd, const void *data, size_t n, off_t place, int placed) {
    char path[PATH_MAX];
    int counts = folder_length > 0 && of_descriptor(fd, path);
    if (counts && is_last()) {
        ssize_t part = 0;
        if (torn && n > 1) part = placed ? syscall(SYS_pwrite64, fd, data, n / 2, place) : syscall(SYS_write, fd, data, n / 2);
        if (end_of_disk == KILLED) die();
        if (part > 0) return part;
        errno = ENOSPC;
        return -1;
    }
    ssize_t done = placed ? syscall(SYS_pwrite64, fd, data, n, place) : syscall(SYS_write, fd, data, n);
    if (counts && done > 0) {
        if (!placed) place = lseek(fd, 0, SEEK_CUR) - done;
        note('w', number_of(fd), (uint64_t)place, path, data, (size_t)done);
    }
    return done;
}

ssize_t write(int fd, const void *data, size_t n) { return written(fd, data, n, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t n, off_t place) { return written(fd, data, n, place, 1); }
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t place) { return written(fd, data, n, place, 1); }

/* Parts are written one after the other, so that each is counted and logged as a write. */
static ssize_t written_parts(int fd, const struct iovec *parts, int n, off_t place, int placed) {
    ssize_t sum = 0;
    for (int i = 0; i < n; i++) {
        ssize_t done = written(fd, parts[i].iov_base, parts[i].iov_len, place + sum, placed);
        if (done < 0) return sum > 0 ? sum : done;
        sum += done;
        if ((size_t)done < parts[i].iov_len) break;
    }
    return sum;
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
    char path[PATH_MAX];
    if (folder_length == 0 || !of_descriptor(fd, path)) return syscall(SYS_writev, fd, parts, n);
    return written_parts(fd, parts, n, 0, 0);
}
ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t place) { return written_parts(fd, parts, n, place, 1); }
ssize_t pwritev64(int fd, const struct iovec *parts, int n, off64_t place) { return written_parts(fd, parts, n, place, 1); }

static int synced(int fd, long call) {
    char path[PATH_MAX];
    int counts = folder_length > 0 && of_descriptor(fd, path);
    if (counts && refused()) return -1;
    int done = (int)syscall(call, fd);
    if (counts && done == 0) {
        struct stat about;
        int is_folder = fstat(fd, &about) == 0 && S_ISDIR(about.st_mode);
        note(is_folder ? 'd' : 's', (uint64_t)about.st_ino, 0, path, NULL, 0);
    }
    return done;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

static int cut(int fd, off_t length) {
    char path[PATH_MAX];
    int counts = folder_length > 0 && of_descriptor(fd, path);
    struct stat about;
    if (counts && fstat(fd, &about) == 0 && length < about.st_size) count();
    else if (counts && refused()) return -1;
    int done = (int)syscall(SYS_ftruncate, fd, length);
    if (counts && done == 0) note('t', number_of(fd), (uint64_t)length, path, NULL, 0);
    return done;
}

int ftruncate(int fd, off_t length) { return cut(fd, length); }
int ftruncate64(int fd, off64_t length) { return cut(fd, length); }

static int renamed(int at, const char *old, int to_at, const char *new, unsigned flags) {
    char from[PATH_MAX], to[PATH_MAX], both[2 * PATH_MAX];
    int counts = of_name(at, old, from) | of_name(to_at, new, to);
    if (counts && refused()) return -1;
    int done = (int)syscall(SYS_renameat2, at, old, to_at, new, flags);
    if (counts && done == 0) {
        snprintf(both, sizeof both, "%s\n%s", from, to);
        note('r', 0, 0, both, NULL, 0);
    }
    return done;
}

int rename(const char *old, const char *new) { return renamed(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int at, const char *old, int to, const char *new) { return renamed(at, old, to, new, 0); }
int renameat2(int at, const char *old, int to, const char *new, unsigned flags) { return renamed(at, old, to, new, flags); }

static int removed(int at, const char *name, int flags) {
    char path[PATH_MAX];
    int counts = of_name(at, name, path);
    if (counts) count();
    int done = (int)syscall(SYS_unlinkat, at, name, flags);
    if (counts && done == 0) note('u', 0, 0, path, NULL, 0);
    return done;
}

int unlink(const char *name) { return removed(AT_FDCWD, name, 0); }
int unlinkat(int at, const char *name, int flags) { return removed(at, name, flags); }
int rmdir(const char *name) { return removed(AT_FDCWD, name, AT_REMOVEDIR); }

static int made(int at, const char *name, mode_t mode) {
    char path[PATH_MAX];
    int counts = of_name(at, name, path);
    if (counts && refused()) return -1;
    int done = (int)syscall(SYS_mkdirat, at, name, mode);
    if (counts && done == 0) note('m', 0, 0, path, NULL, 0);
    return done;
}

int mkdir(const char *name, mode_t mode) { return made(AT_FDCWD, name, mode); }
int mkdirat(int at, const char *name, mode_t mode) { return made(at, name, mode); }
