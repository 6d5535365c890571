/* Says on standard error, from a thread that needs no lock of Python, that no Python has run for too long.

   `start(limit_s, message, path)` begins, `beat()` says that Python runs, `stop()` ends. The thread writes `message`, and
   then the beginning of the file `path`, into which faulthandler writes the stacks at about the same time. It is said once
   in each silence. A child after a fork has no such thread. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TICK_NS = 100000000, LATER_NS = 300000000, MOST_SHOWN = 4096 };

typedef struct {
    atomic_llong beat_ns;
    atomic_int is_over;
    long long limit_ns;
    char *message;
    char *path;
} Watch;

static Watch *watch = NULL;

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void put(const char *text, size_t size) {
    while (size > 0) {
        ssize_t written = write(STDERR_FILENO, text, size);
        if (written <= 0) return;
        text += written;
        size -= (size_t)written;
    }
}

static void put_file(const char *path) {
    char text[MOST_SHOWN];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    ssize_t size = read(file, text, sizeof text);
    close(file);
    if (size > 0) put(text, (size_t)size);
}

static void *run(void *argument) {
    Watch *mine = argument;
    const struct timespec tick = {0, TICK_NS};
    int is_said = 0;
    while (!atomic_load(&mine->is_over)) {
        nanosleep(&tick, NULL);
        long long silent_ns = now_ns() - atomic_load(&mine->beat_ns);
        if (silent_ns < mine->limit_ns) {
            is_said = 0;
        } else if (!is_said && silent_ns >= mine->limit_ns + LATER_NS) {
            /* By now faulthandler has written. */
            is_said = 1;
            put(mine->message, strlen(mine->message));
            put_file(mine->path);
        }
    }
    free(mine->message);
    free(mine->path);
    free(mine);
    return NULL;
}

static PyObject *stop(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    if (watch != NULL) {
        atomic_store(&watch->is_over, 1);
        watch = NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *start(PyObject *module, PyObject *arguments) {
    double limit_s;
    const char *message, *path;
    if (!PyArg_ParseTuple(arguments, "dyy", &limit_s, &message, &path)) return NULL;
    Py_DECREF(stop(module, NULL));
    Watch *made = calloc(1, sizeof *made);
    if (made == NULL) return PyErr_NoMemory();
    made->limit_ns = (long long)(limit_s * 1e9);
    made->message = strdup(message);
    made->path = strdup(path);
    atomic_store(&made->beat_ns, now_ns());
    pthread_t thread;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    int problem = made->message == NULL || made->path == NULL;
    if (!problem) {
        /* The signals of the process are for the threads of the script. */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        problem = pthread_create(&thread, &detached, run, made);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&detached);
    if (problem) {
        free(made->message);
        free(made->path);
        free(made);
        PyErr_SetString(PyExc_RuntimeError, "the thread was not started");
        return NULL;
    }
    watch = made;
    Py_RETURN_NONE;
}

static PyObject *beat(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    if (watch != NULL) atomic_store(&watch->beat_ns, now_ns());
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, "Begin."},
    {"beat", beat, METH_NOARGS, "Python runs."},
    {"stop", stop, METH_NOARGS, "End."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "outside", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_outside(void) { return PyModule_Create(&definition); }
