/* Stands before the C library's durability calls and writes a line for each that succeeded to the file that
 * ATOLL_TRACE_LOG names: start, duration (seconds), call, path. Compiled by preload.py. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int log_fd = -1;
static struct stat log_is;

static void open_log(void) {
    const char *path = getenv("ATOLL_TRACE_LOG");
    if (path == NULL)
        return;
    int fd = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    /* A high number: programs expect the low ones for themselves. */
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 700);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    if (fstat(fd, &log_is) == 0)
        log_fd = fd;
}

/* Early, so that a process that locks itself in later has its log open. */
__attribute__((constructor)) static void start(void) { open_log(); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void note(double began, const char *call, int fd) {
    int kept = errno;
    double took = now() - began;
    char path[PATH_MAX] = "", link[64], line[PATH_MAX + 128];
    if (fd >= 0) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        if (length > 0)
            path[length] = 0;
        else
            strcpy(path, "?");
    } else if (fd == -2) {
        strcpy(path, "?");
    }
    for (char *p = path; *p; p++)
        if (*p == '\n')
            *p = '?';
    int length = snprintf(line, sizeof line, "%.6f %.6f %s %s\n", began, took, call, path);
    /* A program that closes every descriptor may have put a file of its own in the log's place. */
    struct stat is;
    if (log_fd < 0 || fstat(log_fd, &is) != 0 || is.st_ino != log_is.st_ino || is.st_dev != log_is.st_dev) {
        log_fd = -1;
        open_log();
    }
    if (log_fd >= 0 && write(log_fd, line, (size_t)length) != length)
        log_fd = -1;
    errno = kept;
}

#define OF_DESCRIPTOR(name)                                                                                  \
    int name(int fd) {                                                                                       \
        double began = now();                                                                                \
        int result = REAL(name)(fd);                                                                         \
        if (result == 0)                                                                                     \
            note(began, #name, fd);                                                                          \
        return result;                                                                                       \
    }

OF_DESCRIPTOR(fsync)
OF_DESCRIPTOR(fdatasync)
OF_DESCRIPTOR(syncfs)

int sync_file_range(int fd, off64_t offset, off64_t count, unsigned int flags) {
    double began = now();
    int result = REAL(sync_file_range)(fd, offset, count, flags);
    if (result == 0)
        note(began, "sync_file_range", fd);
    return result;
}

void sync(void) {
    double began = now();
    REAL(sync)();
    note(began, "sync", -1);
}

int msync(void *address, size_t length, int flags) {
    double began = now();
    int result = REAL(msync)(address, length, flags);
    if (result == 0 && (flags & MS_SYNC))
        note(began, "msync", -2);
    return result;
}

/* O_SYNC holds the bit of O_DSYNC. A mode is there only when a file may be made. */
#define OF_PATH(name, parameters, arguments)                                                                 \
    int name parameters {                                                                                    \
        mode_t mode = 0;                                                                                     \
        if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {                                         \
            va_list rest;                                                                                    \
            va_start(rest, flags);                                                                           \
            mode = va_arg(rest, mode_t);                                                                     \
            va_end(rest);                                                                                    \
        }                                                                                                    \
        double began = now();                                                                                \
        int result = REAL(name) arguments;                                                                   \
        if (result >= 0 && (flags & O_DSYNC))                                                                \
            note(began, "open", result);                                                                     \
        return result;                                                                                       \
    }

OF_PATH(open, (const char *path, int flags, ...), (path, flags, mode))
OF_PATH(open64, (const char *path, int flags, ...), (path, flags, mode))
OF_PATH(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
OF_PATH(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
