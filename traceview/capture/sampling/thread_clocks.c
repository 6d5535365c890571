/* Notes every few milliseconds how long each thread of this process ran, and how long it was ready and had no core (Linux).

   The kernel counts both since the thread began, in nanoseconds: the first two numbers of /proc/self/task/N/schedstat
   (Documentation/scheduler/sched-stats.rst). A profile names threads by what pthread_self returns in them. The kernel knows an
   address at a fixed distance from that, the list of robust locks, as glibc lays out its threads.

   The noting thread never takes Python's lock, so no Python waits for it, leaves
   all signals to others, and takes at most a part of a core: where a round costs more, the rounds are further apart. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_ROWS (1 << 18)
#define FIRST_ROWS 4096
#define SLOTS 8192
#define REST_PER_COST 50
#define LONGEST_REST_NS 10000000

typedef struct {
    int64_t thread, ident, ran_ns, waited_ns;
} Clock;

/* Unix nanoseconds, and what a thread had run and waited until then. */
typedef struct {
    int64_t at_ns;
    Clock clock;
} Row;

static pthread_t noting;
static pid_t owner;
static int is_noting;
static atomic_int is_over;
static int64_t interval_ns;
static Row *rows;
static size_t count, room;
static Clock *known;

static int64_t
now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* What was known of a thread; NULL where more threads came and went than there are slots. */
static Clock *
clock_of(int64_t thread)
{
    for (size_t tried = 0; tried < SLOTS; tried++) {
        Clock *slot = &known[((uint64_t)thread * 2654435761u + tried) % SLOTS];
        if (slot->thread == thread || slot->thread == 0) {
            return slot;
        }
    }
    return NULL;
}

/* The address of the list of robust locks of a thread; 0 where the kernel does not say. */
static int64_t
robust_list(int64_t thread)
{
    void *head = NULL;
    size_t size;
    return syscall(SYS_get_robust_list, (pid_t)thread, &head, &size) ? 0 : (int64_t)(intptr_t)head;
}

/* What pthread_self returns in a thread; 0 where that is not known. */
static int64_t
ident_of(int64_t thread)
{
    int64_t own = robust_list(0), other = robust_list(thread);
    return own && other ? other - own + (int64_t)(intptr_t)pthread_self() : 0;
}

static int
add(int64_t at_ns, const Clock *clock)
{
    if (count == room) {
        size_t wanted = room ? 2 * room : FIRST_ROWS;
        Row *grown = realloc(rows, wanted * sizeof(Row));
        if (grown == NULL) {
            return 0;
        }
        rows = grown;
        room = wanted;
    }
    rows[count++] = (Row){at_ns, *clock};
    return 1;
}

/* Note all threads whose clocks moved; 0 if nothing can be noted any more. */
static int
note_threads(void)
{
    /* Not kept open: a script may close every descriptor, and get the same number for a file of its own. */
    DIR *list = opendir("/proc/self/task");
    if (list == NULL) {
        return 0;
    }
    int is_noted = 1;
    int64_t own = (int64_t)syscall(SYS_gettid);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        char path[64], text[96];
        Clock read_now = {.thread = strtoll(entry->d_name, NULL, 10)};
        if (read_now.thread <= 0 || read_now.thread == own) {
            continue;
        }
        snprintf(path, sizeof(path), "/proc/self/task/%lld/schedstat", (long long)read_now.thread);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) {
            continue;
        }
        ssize_t size = read(file, text, sizeof(text) - 1);
        close(file);
        if (size <= 0) {
            continue;
        }
        text[size] = 0;
        long long ran, waited;
        if (sscanf(text, "%lld %lld", &ran, &waited) != 2) {
            continue;
        }
        read_now.ran_ns = ran;
        read_now.waited_ns = waited;
        Clock *before = clock_of(read_now.thread);
        if (before != NULL) {
            if (before->thread && before->ran_ns == ran && before->waited_ns == waited) {
                continue;
            }
            /* A thread that has just begun has no list yet. */
            read_now.ident = before->ident ? before->ident : ident_of(read_now.thread);
            *before = read_now;
        }
        if (count >= MOST_ROWS || !add(now_ns(CLOCK_REALTIME), &read_now)) {
            is_noted = 0;
            break;
        }
    }
    closedir(list);
    return is_noted;
}

/* Give this thread descriptors of its own, with none open (Linux 5.9, CLOSE_RANGE_UNSHARE). A script may close all of its
   descriptors while one of ours is open, get the same number for a file, and lose that when we close ours. */
static void
keep_descriptors_apart(void)
{
#ifdef SYS_close_range
    syscall(SYS_close_range, 0u, ~0u, 2u);
#endif
}

static void *
note(void *unused)
{
    keep_descriptors_apart();
    size_t sparse_from = MOST_ROWS / 2;
    for (int is_last = 0; !is_last;) {
        is_last = is_over;
        int64_t begun = now_ns(CLOCK_THREAD_CPUTIME_ID);
        if (!note_threads()) {
            break;
        }
        int64_t cost = now_ns(CLOCK_THREAD_CPUTIME_ID) - begun;
        if (count > sparse_from) {
            interval_ns *= 2;
            sparse_from += (MOST_ROWS - sparse_from) / 2;
        }
        int64_t rest = REST_PER_COST * cost > interval_ns ? REST_PER_COST * cost : interval_ns;
        for (; rest > 0 && !is_over; rest -= LONGEST_REST_NS) {
            struct timespec part = {.tv_nsec = rest < LONGEST_REST_NS ? rest : LONGEST_REST_NS};
            nanosleep(&part, NULL);
        }
    }
    return NULL;
}

static void
forget(void)
{
    free(rows);
    free(known);
    rows = NULL;
    known = NULL;
    count = room = 0;
    is_noting = 0;
}

/* Begin, with as many nanoseconds between two rounds; False where it runs already, or cannot. */
static PyObject *
start(PyObject *module, PyObject *args)
{
    long long wanted;
    if (!PyArg_ParseTuple(args, "L", &wanted)) {
        return NULL;
    }
    if (is_noting && owner != getpid()) {
        /* A fork of a process that noted: its thread is not here. */
        forget();
    }
    if (is_noting) {
        Py_RETURN_FALSE;
    }
    known = calloc(SLOTS, sizeof(Clock));
    if (known == NULL) {
        Py_RETURN_FALSE;
    }
    interval_ns = wanted;
    owner = getpid();
    is_over = 0;
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    is_noting = pthread_create(&noting, NULL, note, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!is_noting) {
        forget();
        Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

/* End, and return the rows: Unix nanoseconds, the kernel's number of the thread, what
   pthread_self returns in it, nanoseconds that it ran and waited, int64 as this machine writes them. */
static PyObject *
stop(PyObject *module, PyObject *unused)
{
    if (!is_noting || owner != getpid()) {
        forget();
        return PyBytes_FromStringAndSize(NULL, 0);
    }
    is_over = 1;
    Py_BEGIN_ALLOW_THREADS
    pthread_join(noting, NULL);
    Py_END_ALLOW_THREADS
    PyObject *result = PyBytes_FromStringAndSize((char *)rows, (Py_ssize_t)(count * sizeof(Row)));
    forget();
    return result;
}

static PyMethodDef functions[] = {
    {"start", start, METH_VARARGS, NULL},
    {"stop", stop, METH_NOARGS, NULL},
    {NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "thread_clocks",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit_thread_clocks(void)
{
    return PyModule_Create(&definition);
}
