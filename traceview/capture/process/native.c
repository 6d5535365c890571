/* What a capture does in a process of the user, and Python cannot do without a trace of itself.

   Around calls a function with something before it and after it. It has no frame: tracebacks, warnings and whatever else
   looks at the stack see the function and its caller, as without it.

   watch_silence() says that no Python has run for too long, from a thread that has let go of Python's lock.

   catch() and the functions below it note a signal that would end the process, without the table of Python's handlers,
   without a descriptor and without another process, so that a thread can save the profile first. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>

typedef struct {
    PyObject_HEAD
    PyObject *wrapped;
    PyObject *before;
    PyObject *after;
    PyObject *dict;
    PyObject *weakrefs;
    vectorcallfunc vectorcall;
} Around;

/* An error of ours must not end the training; Ctrl-C and the like are not ours. */
static int
is_ours(PyObject *self)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return 0;
    }
    PyErr_WriteUnraisable(self);
    return 1;
}

static PyObject *
failed(Around *self, PyObject *token)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace != NULL) {
        PyException_SetTraceback(error, trace);
    }
    PyObject *answer = PyObject_CallFunctionObjArgs(self->after, token, Py_None, error, NULL);
    if (answer == NULL && !is_ours(self->after)) {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(trace);
        return NULL;
    }
    Py_XDECREF(answer);
    PyErr_Restore(type, error, trace);
    return NULL;
}

static PyObject *
around_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *names)
{
    Around *self = (Around *)callable;
    size_t count = PyVectorcall_NARGS(nargsf);
    PyObject *token = PyObject_Vectorcall(self->before, args, count, names);
    if (token == NULL) {
        if (!is_ours(self->before)) {
            return NULL;
        }
        token = Py_NewRef(Py_None);
    }
    PyObject *result = PyObject_Vectorcall(self->wrapped, args, count, names);
    if (token == Py_None) {
        Py_DECREF(token);
        return result;
    }
    if (result == NULL) {
        failed(self, token);
        Py_DECREF(token);
        return NULL;
    }
    PyObject *answer = PyObject_CallFunctionObjArgs(self->after, token, result, Py_None, NULL);
    Py_DECREF(token);
    if (answer == NULL) {
        if (!is_ours(self->after)) {
            Py_DECREF(result);
            return NULL;
        }
        return result;
    }
    Py_DECREF(result);
    return answer;
}

static PyObject *
around_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *wrapped, *before, *after;
    static char *names[] = {"wrapped", "before", "after", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO", names, &wrapped, &before, &after)) {
        return NULL;
    }
    Around *self = (Around *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->wrapped = Py_NewRef(wrapped);
    self->before = Py_NewRef(before);
    self->after = Py_NewRef(after);
    self->vectorcall = around_call;
    return (PyObject *)self;
}

static int
around_traverse(PyObject *object, visitproc visit, void *arg)
{
    Around *self = (Around *)object;
    Py_VISIT(self->wrapped);
    Py_VISIT(self->before);
    Py_VISIT(self->after);
    Py_VISIT(self->dict);
    return 0;
}

static int
around_clear(PyObject *object)
{
    Around *self = (Around *)object;
    Py_CLEAR(self->wrapped);
    Py_CLEAR(self->before);
    Py_CLEAR(self->after);
    Py_CLEAR(self->dict);
    return 0;
}

static void
around_dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    if (((Around *)object)->weakrefs != NULL) {
        PyObject_ClearWeakRefs(object);
    }
    around_clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyObject *
around_get(PyObject *self, PyObject *owner, PyObject *type)
{
    if (owner == NULL || owner == Py_None) {
        return Py_NewRef(self);
    }
    return PyMethod_New(self, owner);
}

static PyGetSetDef around_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL},
};

static PyTypeObject around_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "traceview.capture.process.native.Around",
    .tp_basicsize = sizeof(Around),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL
        | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = around_new,
    .tp_dealloc = around_dealloc,
    .tp_traverse = around_traverse,
    .tp_clear = around_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Around, vectorcall),
    .tp_descr_get = around_get,
    .tp_dictoffset = offsetof(Around, dict),
    .tp_weaklistoffset = offsetof(Around, weakrefs),
    .tp_getset = around_getset,
};

#ifndef _WIN32

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TICK_NS = 100000000, LATER_NS = 300000000, MOST_SHOWN = 4096 };

static atomic_llong beat_ns;
static atomic_int silence_watch;

static long long
now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void
put(const char *text, size_t size)
{
    ssize_t written = 1;
    for (; size > 0 && written > 0; text += written, size -= (size_t)written) {
        written = write(STDERR_FILENO, text, size);
        if (written < 0) {
            return;
        }
    }
}

static void
put_file(const char *path)
{
    char text[MOST_SHOWN];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? 0 : read(file, text, sizeof text);
    if (file >= 0) {
        close(file);
    }
    put(text, size > 0 ? (size_t)size : 0);
}

/* Write `message`, and then the beginning of the file `path`, into which faulthandler writes the stacks at about the same
   time, where Python has not run for `limit` seconds; once in each silence, as long as `own` is the last new_watch(). */
static PyObject *
watch_silence(PyObject *module, PyObject *args)
{
    double limit;
    const char *message, *path;
    int own, is_said = 0;
    if (!PyArg_ParseTuple(args, "idyy", &own, &limit, &message, &path)) {
        return NULL;
    }
    const struct timespec tick = {0, TICK_NS};
    Py_BEGIN_ALLOW_THREADS
    while (atomic_load(&silence_watch) == own) {
        nanosleep(&tick, NULL);
        long long silent_ns = now_ns() - atomic_load(&beat_ns);
        if (silent_ns < (long long)(limit * 1e9)) {
            is_said = 0;
        }
        else if (!is_said && silent_ns >= (long long)(limit * 1e9) + LATER_NS) {
            /* By now faulthandler has written. */
            is_said = 1;
            put(message, strlen(message));
            put_file(path);
        }
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* Python runs. */
static PyObject *
beat(PyObject *module, PyObject *unused)
{
    atomic_store(&beat_ns, now_ns());
    Py_RETURN_NONE;
}

/* The number of a new watch; the one before it ends. */
static PyObject *
new_watch(PyObject *module, PyObject *unused)
{
    atomic_store(&beat_ns, now_ns());
    return PyLong_FromLong(atomic_fetch_add(&silence_watch, 1) + 1);
}

#endif

#ifdef __linux__

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#define MOST_SIGNALS 65
#define LONGEST_STANDSTILL_SECONDS 3

static sem_t came, noticed, taken;
static volatile sig_atomic_t number;
static volatile pid_t owner;
static unsigned char caught[MOST_SIGNALS];

/* The kernel keeps signals that nobody handles from the first process of a container: it goes on. */
static int
goes_on(void)
{
    return getpid() == 1;
}

static void
end_by(int signal_number)
{
    sigset_t set;
    signal(signal_number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    kill(getpid(), signal_number);
}

static void
note(int signal_number)
{
    int kept = errno;
    if (getpid() != owner) {
        /* A forked child ends as it would without us. */
        end_by(signal_number);
    }
    else if (!number) {
        number = signal_number;
        sem_post(&came);
        sem_post(&noticed);
    }
    errno = kept;
}

static int
wait_for(sem_t *semaphore, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)seconds;
    int failure;
    do {
        failure = seconds < 0 ? sem_wait(semaphore) : sem_timedwait(semaphore, &until);
    } while (failure && errno == EINTR);
    return !failure;
}

/* Note these signals, of which none is handled or ignored yet. */
static PyObject *
catch_signals(PyObject *module, PyObject *args)
{
    owner = getpid();
    number = 0;
    sem_init(&came, 0, 0);
    sem_init(&noticed, 0, 0);
    sem_init(&taken, 0, 0);
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(args); place++) {
        long wanted = PyLong_AsLong(PyTuple_GET_ITEM(args, place));
        if (wanted == -1 && PyErr_Occurred()) {
            return NULL;
        }
        if (wanted < 1 || wanted >= MOST_SIGNALS) {
            PyErr_SetString(PyExc_ValueError, "no signal");
            return NULL;
        }
        struct sigaction before, ours = {.sa_handler = note, .sa_flags = SA_RESTART | SA_ONSTACK};
        sigemptyset(&ours.sa_mask);
        caught[wanted] = 0;
        if (sigaction((int)wanted, NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO)
            && (before.sa_handler == SIG_DFL || before.sa_handler == note)) {
            caught[wanted] = sigaction((int)wanted, &ours, NULL) == 0;
        }
    }
    Py_RETURN_NONE;
}

/* Note signals no longer, and end the threads that wait for one. */
static PyObject *
release_signals(PyObject *module, PyObject *unused)
{
    for (int one = 1; one < MOST_SIGNALS; one++) {
        struct sigaction now;
        if (caught[one] && sigaction(one, NULL, &now) == 0 && now.sa_handler == note) {
            signal(one, SIG_DFL);
        }
        caught[one] = 0;
    }
    if (owner == getpid()) {
        sem_post(&came);
        sem_post(&noticed);
    }
    Py_RETURN_NONE;
}

/* Runs in the main thread: the script does nothing more, unless it holds a lock that saving needs. */
static int
stand_still(void *unused)
{
    struct timespec rest = {.tv_sec = LONGEST_STANDSTILL_SECONDS};
    Py_BEGIN_ALLOW_THREADS
    nanosleep(&rest, NULL);
    Py_END_ALLOW_THREADS
    return 0;
}

/* Wait for a signal, and return its number, 0 after release. */
static PyObject *
wait_for_signal(PyObject *module, PyObject *unused)
{
    Py_BEGIN_ALLOW_THREADS
    wait_for(&came, -1);
    Py_END_ALLOW_THREADS
    sem_post(&taken);
    if (number && !goes_on()) {
        Py_AddPendingCall(stand_still, NULL);
    }
    return PyLong_FromLong(number);
}

/* End the process by the signal that came, if Python does not act on it within `grace` seconds, or not end it in time.

   Whether Python's lock is free does not matter here. */
static PyObject *
hold_to(PyObject *module, PyObject *args)
{
    double grace, longest;
    if (!PyArg_ParseTuple(args, "dd", &grace, &longest)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    wait_for(&noticed, -1);
    if (number && !goes_on()) {
        if (wait_for(&taken, grace)) {
            struct timespec rest = {.tv_sec = (time_t)longest};
            while (nanosleep(&rest, &rest) && errno == EINTR) {
            }
        }
        else {
            static const char words[] = "traceview: a native call holds Python's lock, so the profile is not saved\n";
            if (write(2, words, sizeof(words) - 1)) {
            }
        }
        end_by(number);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* End the process by a signal, as if nobody had handled it; return where the process goes on. */
static PyObject *
end_by_signal(PyObject *module, PyObject *args)
{
    int wanted;
    if (!PyArg_ParseTuple(args, "i", &wanted)) {
        return NULL;
    }
    if (goes_on()) {
        Py_RETURN_NONE;
    }
    end_by(wanted);
    _exit(128 + wanted);
}

#endif

#ifdef __GLIBC__

static void
end_with(int code, void *wanted)
{
    if (code == 0) {
        exit((int)(intptr_t)wanted);
    }
}

/* Let the process, if it ends well, have another exit code; in glibc all that is left to do before the end is done. */
static PyObject *
set_exit_code(PyObject *module, PyObject *code)
{
    on_exit(end_with, (void *)(intptr_t)PyLong_AsLong(code));
    Py_RETURN_NONE;
}

#endif

static PyMethodDef functions[] = {
#ifndef _WIN32
    {"watch_silence", watch_silence, METH_VARARGS, NULL},
    {"beat", beat, METH_NOARGS, NULL},
    {"new_watch", new_watch, METH_NOARGS, NULL},
#endif
#ifdef __linux__
    {"catch", catch_signals, METH_VARARGS, NULL},
    {"release", release_signals, METH_NOARGS, NULL},
    {"wait", wait_for_signal, METH_NOARGS, NULL},
    {"hold_to", hold_to, METH_VARARGS, NULL},
    {"end_by", end_by_signal, METH_VARARGS, NULL},
#endif
#ifdef __GLIBC__
    {"set_exit_code", set_exit_code, METH_O, NULL},
#endif
    {NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "native",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit_native(void)
{
    if (PyType_Ready(&around_type) < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObjectRef(module, "Around", (PyObject *)&around_type) < 0) {
        Py_CLEAR(module);
    }
    return module;
}
