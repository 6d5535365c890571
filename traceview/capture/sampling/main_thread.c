/* Asks the main thread of Python about once a millisecond to call a function, where it runs Python.

   A thread that wants Python's lock waits for 5 ms, or changes who else gets it. The main thread calls what is asked for between two
   of its instructions (Py_AddPendingCall), with the lock that it has, and nobody waits. Where it runs no Python it answers late, and
   is told how late.

   The asking thread never takes Python's lock, and leaves all signals to others. */

#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE_MODULE
#include <Python.h>

#if PY_VERSION_HEX < 0x030D0000
/* Until 3.12 Py_AddPendingCall in another thread does not tell the main thread that there is something to do. */
#include <internal/pycore_interp.h>
#define TELL_MAIN_THREAD() _Py_atomic_store_relaxed(&PyInterpreterState_Main()->ceval.eval_breaker, 1)
#else
#define TELL_MAIN_THREAD()
#endif

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

static pthread_t asking;
static pid_t owner;
static int is_asking;
static atomic_int is_over, is_waiting;
static atomic_llong asked_ns;
static int64_t interval_ns;
static PyObject *wanted;

static int64_t
now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Runs in the main thread, with the lock. */
static int
answer(void *unused)
{
    long long due_ns = asked_ns;
    is_waiting = 0;
    if (is_over || wanted == NULL || owner != getpid()) {
        return 0;
    }
    PyObject *function = wanted;
    Py_INCREF(function);
    PyObject *result = PyObject_CallFunction(function, "L", due_ns);
    Py_XDECREF(result);
    Py_DECREF(function);
    /* What is raised here is raised in the script, as by a handler of a signal that runs meanwhile. */
    return result == NULL ? -1 : 0;
}

static void *
ask(void *unused)
{
    /* Equal distances would meet a loop of the same length always in the same line. */
    double phase = 0;
    while (!is_over) {
        phase += 0.6180339887498949;
        phase -= phase >= 1;
        struct timespec rest = {.tv_nsec = (long)(interval_ns * (0.5 + phase))};
        nanosleep(&rest, NULL);
        if (!Py_IsInitialized()) {
            break;
        }
        if (!is_waiting && !is_over) {
            is_waiting = 1;
            asked_ns = now_ns();
            if (Py_AddPendingCall(answer, NULL)) {
                /* Others have asked for too much. */
                is_waiting = 0;
            }
            TELL_MAIN_THREAD();
        }
    }
    return NULL;
}

/* Begin, with a function of one argument, when it was asked for in Unix nanoseconds, and the nanoseconds, less than half a second,
   between two questions; False where it asks already, or cannot. */
static PyObject *
start(PyObject *module, PyObject *args)
{
    PyObject *function;
    long long interval;
    if (!PyArg_ParseTuple(args, "OL", &function, &interval)) {
        return NULL;
    }
    if (is_asking && owner == getpid()) {
        Py_RETURN_FALSE;
    }
    Py_INCREF(function);
    Py_XSETREF(wanted, function);
    interval_ns = interval;
    owner = getpid();
    is_over = is_waiting = 0;
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    is_asking = pthread_create(&asking, NULL, ask, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return PyBool_FromLong(is_asking);
}

/* End. */
static PyObject *
stop(PyObject *module, PyObject *unused)
{
    is_over = 1;
    if (is_asking && owner == getpid()) {
        Py_BEGIN_ALLOW_THREADS
        pthread_join(asking, NULL);
        Py_END_ALLOW_THREADS
    }
    is_asking = 0;
    Py_CLEAR(wanted);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"start", start, METH_VARARGS, NULL},
    {"stop", stop, METH_NOARGS, NULL},
    {NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "main_thread",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit_main_thread(void)
{
    return PyModule_Create(&definition);
}
