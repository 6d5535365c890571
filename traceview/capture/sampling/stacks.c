/* Notes about every millisecond, without Python's lock, where each thread of Python is (Linux, Python 3.10 to 3.13).

   A thread that needs the lock is given it where others let go of it, and not where they spend their time. So a thread of its own
   reads the frames of all threads from memory while they run, as py-spy does from outside. It calls nothing of Python, writes nothing
   of it, and leaves all signals to others.

   What it reads may change or be gone meanwhile. So all of it is read by the kernel (process_vm_readv, else /proc/self/mem), which
   says so where no memory is; each frame must have a code object and an instruction in it; and a walk is made again where the thread
   was elsewhere after it.

   The layout of frames differs between versions of Python, and is no public API. `start` therefore walks the thread that calls it,
   and compares what it finds with what Python itself says of that thread. Where they differ it gives the reason, and does not start:
   that makes versions safe that nobody has tried. */

#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE_MODULE
#include <Python.h>

#if !defined(__linux__) || PY_VERSION_HEX >= 0x030E0000 || defined(Py_GIL_DISABLED)

static PyObject *
start(PyObject *module, PyObject *args)
{
    return PyUnicode_FromString("this system or version of Python");
}

static PyObject *
none(PyObject *module, PyObject *args)
{
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"start", start, METH_VARARGS, NULL},
    {"note", none, METH_NOARGS, NULL},
    {"wait", none, METH_VARARGS, NULL},
    {"stop", none, METH_NOARGS, NULL},
    {NULL},
};

#else

#include <frameobject.h>
#if PY_VERSION_HEX >= 0x030B0000
#include <internal/pycore_frame.h>
#endif
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The choices are ours. */
#define MOST_FRAMES 256
#define MOST_THREADS 4096
#define MOST_AHEAD 64
#define MOST_CODES (1 << 16)
#define MOST_STACKS (1 << 16)
#define MOST_PLACES (1 << 22)
#define MOST_TEXT 4096
#define MOST_LINES (1 << 20)
#define FIRST_ROWS 4096
#define SLOTS (1 << 17)
#define THREAD_SLOTS 8192
#define SEEN_SLOTS 8192
#define MOST_WALKS 8
#define REST_PER_COST 20
#define COST_ROUNDS 8
#define MOST_LEARNING_NS 20000000
#define SLICE_NS 100000
#define LONGEST_REST_NS 10000000
#define WINDOW 6144
#define FURTHEST_NUMBER 2048
#define CHECKED_LINES 64
#define HANDOVERS 0x3FFFFFFF

enum { NOT_KNOWN = -1, FAILED = -1 };

#if PY_VERSION_HEX < 0x030B0000
typedef PyFrameObject Frame;
#define FRAME_SIZE (offsetof(PyFrameObject, f_lasti) + sizeof(int))
#define CODE_OF(frame) ((uintptr_t)(frame)->f_code)
#define INSTRUCTION_OF(frame) ((uintptr_t)(frame)->f_lasti)
#define BEFORE(frame) ((uintptr_t)(frame)->f_back)
#define HEAD_SIZE sizeof(PyCodeObject)
#define THREADS(interpreter) (&(interpreter)->tstate_head)
#define FULL_NAME_OF(head) ((uintptr_t)(head)->co_name)
#else
typedef struct _PyInterpreterFrame Frame;
#define FRAME_SIZE offsetof(Frame, localsplus)
#if PY_VERSION_HEX < 0x030D0000
#define CODE_OF(frame) ((uintptr_t)(frame)->f_code)
#define INSTRUCTION_OF(frame) ((uintptr_t)(frame)->prev_instr)
#else
#define CODE_OF(frame) ((uintptr_t)(frame)->f_executable)
#define INSTRUCTION_OF(frame) ((uintptr_t)(frame)->instr_ptr)
#endif
#define BEFORE(frame) ((uintptr_t)(frame)->previous)
#define HEAD_SIZE offsetof(PyCodeObject, co_code_adaptive)
/* Py_SIZE would assert what a copy of any memory may not be. */
#define SIZE_OF(head) ((int64_t)((const PyVarObject *)(head))->ob_size)
#define THREADS(interpreter) (&(interpreter)->threads.head)
#define FULL_NAME_OF(head) ((uintptr_t)(head)->co_qualname)
#endif

typedef struct {
    uintptr_t from;
    void *to;
    size_t size;
} Range;

/* A copy of the memory around a frame: the next ones mostly lie before it. */
typedef struct {
    uintptr_t from;
    size_t size;
    char bytes[WINDOW + sizeof(Frame)];
} Window;

typedef struct {
    int kind;
    Py_ssize_t length;
    void *bytes;
} Text;

/* A code object: by what it is known, as another may come to lie at its address, and what Python needs to find its lines.
   `is_doubtful`: where code is made and freed again and again, all of that may be alike. */
typedef struct {
    uintptr_t address, lines, file, name, constants;
    int64_t size;
    uint32_t version;
    int first_line, is_doubtful;
    Text texts[3];
    Text table;
} Code;

typedef struct {
    int32_t code, instruction;
} Place;

/* A frame as the walk of a number found it. While its function waits for what it called, all of that stays. */
typedef struct {
    uintptr_t frame, code, instruction;
    int64_t walk;
    Place place;
} Seen;

/* Where a stack begins among the places, and how many it has. */
typedef struct {
    uint32_t first, depth;
    uint64_t hash;
} Stack;

/* What pthread_self returns in a thread, its number in the kernel, and its processor time, walk and stack when it was last seen. */
typedef struct {
    int64_t ident, native, cpu_ns, walk;
    int32_t number, stack;
} Thread;

typedef struct {
    int64_t t_ns, cpu_us;
    int32_t thread, stack, late_us, held;
} Row;

typedef struct {
    uintptr_t holder;
    int is_locked;
    unsigned long handovers;
} Lock;

static pthread_t sampling;
static pid_t owner;
static int is_sampling;
static atomic_int is_over, is_open;
static sem_t news;
static int64_t interval_ns, spent_ns, begun_ns, learning_ns;
static size_t most_rows;

static int memory = -1;
static PyInterpreterState *interpreter;
static uintptr_t lock_address;
#if PY_VERSION_HEX >= 0x030B0000
static Window windows[2];
static int oldest;
#endif
static Seen seen[SEEN_SLOTS];
static int64_t walk_count;
static PyThreadState ahead[MOST_AHEAD];
static uintptr_t ahead_of[MOST_AHEAD];
static int ahead_count;

static Row *rows;
static size_t row_count, room;
static Code *codes;
static size_t code_count;
static Stack *stacks;
static size_t stack_count;
static Place *places;
static size_t place_count, place_room;
static int32_t *code_slots, *stack_slots;
static Thread *threads;
static int32_t thread_count;

static int64_t
now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Copy memory that may not be there; 0 unless all of it is. */
static int
peek_all(const Range *ranges, int count)
{
    struct iovec to[MOST_FRAMES], from[MOST_FRAMES];
    ssize_t size = 0;
    for (int at = 0; at < count; at++) {
        to[at] = (struct iovec){ranges[at].to, ranges[at].size};
        from[at] = (struct iovec){(void *)ranges[at].from, ranges[at].size};
        size += (ssize_t)ranges[at].size;
    }
    if (memory < 0) {
        return process_vm_readv(owner, to, (unsigned long)count, from, (unsigned long)count, 0) == size;
    }
    for (int at = 0; at < count; at++) {
        if (pread(memory, ranges[at].to, ranges[at].size, (off_t)ranges[at].from) != (ssize_t)ranges[at].size) {
            return 0;
        }
    }
    return 1;
}

static int
peek(uintptr_t from, void *to, size_t size)
{
    Range range = {from, to, size};
    return peek_all(&range, 1);
}

static void
forget_windows(void)
{
#if PY_VERSION_HEX >= 0x030B0000
    windows[0].size = windows[1].size = 0;
#endif
}

static int
peek_frame(uintptr_t at, Frame *frame)
{
#if PY_VERSION_HEX >= 0x030B0000
    for (int each = 0; each < 2; each++) {
        Window *window = &windows[each];
        if (at >= window->from && at - window->from + FRAME_SIZE <= window->size) {
            memcpy(frame, window->bytes + (at - window->from), FRAME_SIZE);
            return 1;
        }
    }
    Window *window = &windows[oldest];
    window->from = at - WINDOW;
    window->size = WINDOW + FRAME_SIZE;
    if (at > WINDOW && peek(window->from, window->bytes, window->size)) {
        oldest = !oldest;
        memcpy(frame, window->bytes + WINDOW, FRAME_SIZE);
        return 1;
    }
    window->size = 0;
#endif
    return peek(at, frame, FRAME_SIZE);
}

/* Room for bytes of Python's memory, and where they are; 0 where there can be none. */
static int
make_room(uintptr_t from, Py_ssize_t length, Py_ssize_t most, int kind, Text *text, Range *range)
{
    if (length < 0 || length > most || (kind != 1 && kind != 2 && kind != 4)) {
        return 0;
    }
    size_t size = (size_t)length * (size_t)kind;
    *text = (Text){kind, length, malloc(size + 1)};
    *range = (Range){from, text->bytes, size};
    return text->bytes != NULL;
}

/* Room for a text of Python (PEP 393) whose head was read. */
static int
make_room_for_text(uintptr_t from, const PyASCIIObject *head, Text *text, Range *range)
{
    size_t head_size = head->state.ascii ? sizeof(PyASCIIObject) : sizeof(PyCompactUnicodeObject);
    return Py_TYPE(head) == &PyUnicode_Type && head->state.compact
        && make_room(from + head_size, head->length, MOST_TEXT, head->state.kind, text, range);
}

/* Whether what was read is a code object. One that was freed looks like it, but for the count of its references, where Python keeps
   the next free block. */
static int
is_code(const PyCodeObject *head)
{
    return Py_TYPE(head) == &PyCode_Type && Py_REFCNT(head) > 0 && Py_REFCNT(head) <= UINT32_MAX;
}

static Code
known_by(uintptr_t address, const PyCodeObject *head)
{
    Code code = {
        .address = address,
        .lines = (uintptr_t)head->co_linetable,
        .file = (uintptr_t)head->co_filename,
        .name = (uintptr_t)head->co_name,
        .constants = (uintptr_t)head->co_consts,
        .first_line = head->co_firstlineno,
#if PY_VERSION_HEX < 0x030B0000
        .size = (int64_t)(intptr_t)head->co_code,
#else
        .size = SIZE_OF(head),
#endif
#if PY_VERSION_HEX >= 0x030C0000
        .version = head->co_version,
#endif
    };
    return code;
}

static int
is_same(const Code *code, const Code *other)
{
    return code->address == other->address && code->lines == other->lines && code->file == other->file && code->name == other->name
        && code->constants == other->constants && code->first_line == other->first_line && code->size == other->size
        && code->version == other->version;
}

static int
has_same_lines(const Code *code)
{
    char begin[CHECKED_LINES];
    size_t size = code->table.length < CHECKED_LINES ? (size_t)code->table.length : CHECKED_LINES;
    return peek(code->lines + offsetof(PyBytesObject, ob_sval), begin, size) && memcmp(begin, code->table.bytes, size) == 0;
}

static int
begins_with(const Text *text, const char *begin)
{
    size_t length = strlen(begin);
    return text->kind == 1 && (size_t)text->length >= length && memcmp(text->bytes, begin, length) == 0;
}

/* Whether code is run once and freed: that of a module, or what programs make, without a file. */
static int
is_short_lived(const Code *code)
{
    return (begins_with(&code->texts[0], "<") && !begins_with(&code->texts[0], "<frozen")) || begins_with(&code->texts[1], "<module>");
}

static void
free_code(Code *code)
{
    for (int each = 0; each < 3; each++) {
        free(code->texts[each].bytes);
    }
    free(code->table.bytes);
}

/* Copy what is said of a code object, unless another lies there meanwhile. */
static int
learn(Code *code, const PyCodeObject *head)
{
    PyASCIIObject texts[3];
    PyVarObject table;
    PyCodeObject again;
    uintptr_t from[] = {code->file, code->name, FULL_NAME_OF(head)};
    Range ranges[] = {
        {code->lines, &table, sizeof(table)},
        {from[0], &texts[0], sizeof(texts[0])},
        {from[1], &texts[1], sizeof(texts[1])},
        {from[2], &texts[2], sizeof(texts[2])},
        {code->address, &again, HEAD_SIZE},
    };
    int is_there = peek_all(ranges, 4) && Py_TYPE(&table) == &PyBytes_Type
        && make_room(code->lines + offsetof(PyBytesObject, ob_sval), table.ob_size, MOST_LINES, 1, &code->table, &ranges[0]);
    for (int each = 0; is_there && each < 3; each++) {
        is_there = make_room_for_text(from[each], &texts[each], &code->texts[each], &ranges[1 + each]);
    }
    if (is_there && peek_all(ranges, 5) && is_code(&again)) {
        Code same = known_by(code->address, &again);
        if (is_same(code, &same)) {
            return 1;
        }
    }
    free_code(code);
    return 0;
}

/* The number of a code object whose head was read; negative where it is none, or too many are known. */
static int32_t
number_of_code(uintptr_t address, const PyCodeObject *head)
{
    if (!is_code(head)) {
        return FAILED;
    }
    Code code = known_by(address, head);
    size_t slot = (size_t)(((uint64_t)address >> 4) * 0x9E3779B97F4A7C15u >> 40) % SLOTS;
    for (; code_slots[slot]; slot = (slot + 1) % SLOTS) {
        Code *known = &codes[code_slots[slot] - 1];
        if (is_same(known, &code) && (!known->is_doubtful || has_same_lines(known))) {
            return code_slots[slot] - 1;
        }
        if (known->address == address) {
            known->is_doubtful = code.is_doubtful = 1;
        }
    }
    if (code_count == MOST_CODES) {
        return FAILED;
    }
    int64_t begun_at_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    int is_learned = learn(&code, head);
    learning_ns += now_ns(CLOCK_THREAD_CPUTIME_ID) - begun_at_ns;
    if (!is_learned) {
        return FAILED;
    }
    code.is_doubtful |= is_short_lived(&code);
    codes[code_count++] = code;
    code_slots[slot] = (int32_t)code_count;
    return (int32_t)code_count - 1;
}

/* The byte of the code that runs, as `f_lasti`; less than -1 where it is none of this code. */
static int64_t
instruction_of(const Frame *frame, const PyCodeObject *head)
{
#if PY_VERSION_HEX < 0x030B0000
    int64_t at = frame->f_lasti < 0 ? -1 : (int64_t)frame->f_lasti * (int64_t)sizeof(_Py_CODEUNIT), size = MOST_LINES;
#else
    int64_t at = (int64_t)(INSTRUCTION_OF(frame) - CODE_OF(frame)) - (int64_t)HEAD_SIZE, size = SIZE_OF(head) * (int64_t)sizeof(_Py_CODEUNIT);
    if (at == -(int64_t)sizeof(_Py_CODEUNIT)) {
        /* Before the first one. */
        at = -1;
    }
#endif
    return at < size ? at : -2;
}

#define LOCK_SIZE (offsetof(struct _gil_runtime_state, switch_number) + sizeof(unsigned long))

static Lock
lock_of(const struct _gil_runtime_state *copy)
{
    Lock lock = {.handovers = copy->switch_number};
    memcpy(&lock.holder, &copy->last_holder, sizeof(lock.holder));
    memcpy(&lock.is_locked, &copy->locked, sizeof(lock.is_locked));
    return lock;
}

static int
holds(uintptr_t thread, const Lock *lock)
{
    return lock->is_locked == 1 && lock->holder == thread;
}

/* Where a thread is: the address at which its frame is named, and the frame. */
typedef struct {
    uintptr_t place, frame;
} Top;

static int
peek_top(uintptr_t thread, const PyThreadState *state, Top *top)
{
#if PY_VERSION_HEX < 0x030B0000
    top->place = thread + offsetof(PyThreadState, frame);
#elif PY_VERSION_HEX < 0x030D0000
    uintptr_t link = (uintptr_t)state->cframe;
    top->place = link + offsetof(_PyCFrame, current_frame);
#else
    top->place = thread + offsetof(PyThreadState, current_frame);
#endif
    return peek(top->place, &top->frame, sizeof(top->frame));
}

/* Whether a thread is still in the frame where a walk began; reads the lock, too. */
static int
is_still_there(uintptr_t thread, const Top *top, const Frame *first, Lock *lock)
{
    Top now = *top;
    Frame frame;
    struct _gil_runtime_state copy;
    Range ranges[4];
    int count = 0;
    ranges[count++] = (Range){lock_address, &copy, LOCK_SIZE};
    ranges[count++] = (Range){top->place, &now.frame, sizeof(now.frame)};
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
    uintptr_t link;
    ranges[count++] = (Range){thread + offsetof(PyThreadState, cframe), &link, sizeof(link)};
#endif
    if (top->frame) {
        ranges[count++] = (Range){top->frame, &frame, FRAME_SIZE};
    }
    if (!peek_all(ranges, count)) {
        memset(lock, 0, sizeof(*lock));
        return 0;
    }
    *lock = lock_of(&copy);
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
    if (link != top->place - offsetof(_PyCFrame, current_frame)) {
        return 0;
    }
#endif
    return now.frame == top->frame
        && (!top->frame || (CODE_OF(&frame) == CODE_OF(first) && BEFORE(&frame) == BEFORE(first)));
}

/* The places of a thread, the innermost first; negative where its memory makes no sense. `before`: its last walk. */
static int
walk(const Top *top, int64_t before, Place *found, Frame *first, Frame *last)
{
    static Frame frames[MOST_FRAMES];
    static PyCodeObject heads[MOST_FRAMES];
    uintptr_t addresses[MOST_FRAMES];
    Range ranges[MOST_FRAMES];
    int new[MOST_FRAMES], depth = 0, new_count = 0;
    walk_count++;
    forget_windows();
    /* Frames that C code owns are among those that are passed. */
    uintptr_t at = top->frame;
    for (int passed = 0; at && depth < MOST_FRAMES && passed < 2 * MOST_FRAMES; passed++) {
        Frame *frame = &frames[depth];
        if (!peek_frame(at, frame)) {
            return FAILED;
        }
        if (passed == 0) {
            memcpy(first, frame, FRAME_SIZE);
        }
        addresses[depth] = at;
        at = BEFORE(frame);
#if PY_VERSION_HEX >= 0x030C0000
        if (frame->owner == FRAME_OWNED_BY_CSTACK) {
            continue;
        }
#endif
        Seen *known = &seen[addresses[depth] / sizeof(uintptr_t) % SEEN_SLOTS];
        if (known->frame == addresses[depth] && known->walk == before && known->code == CODE_OF(frame)
            && known->instruction == INSTRUCTION_OF(frame) && !codes[known->place.code].is_doubtful) {
            known->walk = walk_count;
            found[depth] = known->place;
        } else {
            ranges[new_count] = (Range){CODE_OF(frame), &heads[new_count], HEAD_SIZE};
            new[new_count++] = depth;
        }
        memcpy(last, frame, FRAME_SIZE);
        depth++;
    }
    if (new_count && !peek_all(ranges, new_count)) {
        return FAILED;
    }
    for (int each = 0; each < new_count; each++) {
        const Frame *frame = &frames[new[each]];
        int32_t code = number_of_code(CODE_OF(frame), &heads[each]);
        int64_t instruction = code < 0 ? -2 : instruction_of(frame, &heads[each]);
        if (instruction < -1) {
            return FAILED;
        }
        uintptr_t address = addresses[new[each]];
        found[new[each]] = (Place){code, (int32_t)instruction};
        seen[address / sizeof(uintptr_t) % SEEN_SLOTS]
            = (Seen){address, CODE_OF(frame), INSTRUCTION_OF(frame), walk_count, found[new[each]]};
    }
    return depth;
}

/* The number of a stack; negative where too many are known. */
static int32_t
number_of_stack(const Place *found, int depth)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (int each = 0; each < depth; each++) {
        hash = (hash ^ (uint32_t)found[each].code) * 0x100000001B3u;
        hash = (hash ^ (uint32_t)found[each].instruction) * 0x100000001B3u;
    }
    size_t slot = (size_t)((hash ^ hash >> 32) % SLOTS);
    for (; stack_slots[slot]; slot = (slot + 1) % SLOTS) {
        Stack *known = &stacks[stack_slots[slot] - 1];
        if (known->hash == hash && known->depth == (uint32_t)depth
            && memcmp(&places[known->first], found, (size_t)depth * sizeof(Place)) == 0) {
            return stack_slots[slot] - 1;
        }
    }
    if (stack_count == MOST_STACKS || place_count + (size_t)depth > MOST_PLACES) {
        return FAILED;
    }
    if (place_count + (size_t)depth > place_room) {
        size_t wanted = 2 * place_room + MOST_FRAMES;
        Place *grown = realloc(places, wanted * sizeof(Place));
        if (grown == NULL) {
            return FAILED;
        }
        places = grown;
        place_room = wanted;
    }
    memcpy(&places[place_count], found, (size_t)depth * sizeof(Place));
    stacks[stack_count++] = (Stack){(uint32_t)place_count, (uint32_t)depth, hash};
    place_count += (size_t)depth;
    stack_slots[slot] = (int32_t)stack_count;
    return (int32_t)stack_count - 1;
}

/* Whether nothing has called the last frame of a walk because it is that of a generator which has just yielded. */
static int
is_cut(const Frame *last)
{
#if PY_VERSION_HEX < 0x030B0000
    return last->f_gen != NULL;
#else
    return last->owner == FRAME_OWNED_BY_GENERATOR;
#endif
}

/* Find the stack of a thread, and the lock after that. */
static void
find_stack(uintptr_t at, PyThreadState *state, Thread *thread, Lock *lock)
{
    Place found[MOST_FRAMES];
    int depth = FAILED;
    for (int tries = 0; tries < MOST_WALKS; tries++) {
        Top top;
        Frame first, last;
        if (tries && (!peek(at, state, sizeof(*state)) || state->interp != interpreter)) {
            break;
        }
        if (!peek_top(at, state, &top)) {
            depth = FAILED;
            continue;
        }
        depth = walk(&top, thread->walk, found, &first, &last);
        thread->walk = walk_count;
        if (is_still_there(at, &top, &first, lock) && depth >= 0 && (depth == 0 || !is_cut(&last))) {
            break;
        }
    }
    /* A thread that has not begun has no frames, and the identity of the one that made it. */
    thread->stack = depth > 0 ? number_of_stack(found, depth) : FAILED;
}

#if PY_VERSION_HEX < 0x030B0000
/* Where the C library keeps the kernel's number of a thread, as seen from what pthread_self returns; 0 where that is not known. */
static size_t number_place;

static size_t
find_number_place(void)
{
    int own = (int)syscall(SYS_gettid), number;
    for (size_t at = sizeof(int); at < FURTHEST_NUMBER; at += sizeof(int)) {
        if (peek((uintptr_t)pthread_self() + at, &number, sizeof(number)) && number == own) {
            return at;
        }
    }
    return 0;
}
#endif

/* The kernel's number of a thread, which Python has from 3.11 on; 0 where it is not known. */
static int64_t
native_of(const PyThreadState *state)
{
#if PY_VERSION_HEX < 0x030B0000
    int number;
    return number_place && peek((uintptr_t)state->thread_id + number_place, &number, sizeof(number)) ? number : 0;
#else
    return (int64_t)state->native_thread_id;
#endif
}

/* The processor time of a thread; where it has ended, not known. */
static int64_t
cpu_ns_of(int64_t native)
{
    /* The kernel's name of the clock of a thread (linux/posix-timers.h). */
    struct timespec time;
    if (native <= 0 || clock_gettime((clockid_t)(~(unsigned int)native << 3 | 6), &time)) {
        return NOT_KNOWN;
    }
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* What is known of a thread; NULL where more came and went than there are slots. */
static Thread *
thread_of(int64_t ident, int64_t native)
{
    for (size_t tried = 0; tried < THREAD_SLOTS; tried++) {
        Thread *slot = &threads[(((uint64_t)ident >> 6) * 2654435761u + (uint64_t)native + tried) % THREAD_SLOTS];
        if (slot->ident == ident && slot->native == native) {
            return slot;
        }
        if (slot->ident == 0) {
            *slot = (Thread){ident, native, NOT_KNOWN, NOT_KNOWN, thread_count++, FAILED};
            sem_post(&news);
            return slot;
        }
    }
    return NULL;
}

static int
add(Row row)
{
    if (row_count == room) {
        size_t wanted = room ? 2 * room : FIRST_ROWS;
        Row *grown = realloc(rows, wanted * sizeof(Row));
        if (grown == NULL) {
            return 0;
        }
        rows = grown;
        room = wanted;
    }
    rows[row_count++] = row;
    return 1;
}

/* Note where all threads are; 0 if nothing can be noted any more. */
static int
sample(int64_t late_ns)
{
    int64_t t_ns = now_ns(CLOCK_REALTIME);
    int32_t late_us = late_ns < 0 ? 0 : late_ns / 1000 > INT32_MAX ? INT32_MAX : (int32_t)(late_ns / 1000);
    struct _gil_runtime_state copy;
    uintptr_t at;
    Range ranges[2 + MOST_AHEAD] = {{(uintptr_t)THREADS(interpreter), &at, sizeof(at)}, {lock_address, &copy, LOCK_SIZE}};
    /* The same threads as before, in all likelihood. */
    for (int each = 0; each < ahead_count; each++) {
        ranges[2 + each] = (Range){ahead_of[each], &ahead[each], sizeof(PyThreadState)};
    }
    if (!peek_all(ranges, 2 + ahead_count)) {
        ahead_count = 0;
        if (!peek_all(ranges, 2)) {
            return 1;
        }
    }
    Lock lock = lock_of(&copy);
    int passed = 0;
    for (; at && passed < MOST_THREADS; passed++) {
        PyThreadState state;
        if (passed < ahead_count && ahead_of[passed] == at) {
            state = ahead[passed];
        } else if (!peek(at, &state, sizeof(state))) {
            break;
        }
        if (state.interp != interpreter) {
            break;
        }
        if (passed < MOST_AHEAD) {
            ahead_of[passed] = at;
        }
        uintptr_t next = (uintptr_t)state.next;
        int64_t native = native_of(&state);
        Thread *thread = state.thread_id ? thread_of((int64_t)state.thread_id, native) : NULL;
        if (thread != NULL) {
            int64_t cpu_ns = cpu_ns_of(native);
            int is_holder = holds(at, &lock);
            if (cpu_ns == NOT_KNOWN || cpu_ns != thread->cpu_ns || thread->stack == FAILED) {
                Lock before = lock;
                memset(&lock, 0, sizeof(lock));
                find_stack(at, &state, thread, &lock);
                thread->cpu_ns = cpu_ns;
                is_holder = is_holder && holds(at, &lock) && lock.handovers == before.handovers;
            }
            int32_t held = is_holder ? (int32_t)(lock.handovers & HANDOVERS) : NOT_KNOWN;
            int64_t cpu_us = cpu_ns < 0 ? NOT_KNOWN : cpu_ns / 1000;
            if (thread->stack >= 0 && !add((Row){t_ns, cpu_us, thread->number, thread->stack, late_us, held})) {
                return 0;
            }
        }
        at = next;
    }
    ahead_count = passed < MOST_AHEAD ? passed : MOST_AHEAD;
    return 1;
}

/* Drop every second round, and take half as many. */
static void
thin_out(void)
{
    size_t kept = 0;
    int is_kept = 1;
    for (size_t each = 0; each < row_count; each++) {
        int64_t before = each ? rows[each].t_ns : 0;
        if (is_kept) {
            rows[kept++] = rows[each];
        }
        if (each + 1 < row_count && rows[each + 1].t_ns != before) {
            is_kept = !is_kept;
        }
    }
    row_count = kept;
    interval_ns *= 2;
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

static int
open_memory(void)
{
    return open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
}

/* Get a core soon where another thread has it. Else rounds come late while the threads of Python compute, and more often than not
   find them asleep. From Linux 6.12 on a thread may ask for short slices, and then goes before those with long ones (sched(7)). */
static void
wake_promptly(void)
{
    /* Else the kernel adds up to 50 µs to each rest. */
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
#ifdef SYS_sched_setattr
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes;
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0u) == 0 && attributes.policy == SCHED_OTHER) {
        attributes.runtime = SLICE_NS;
        syscall(SYS_sched_setattr, 0, &attributes, 0u);
    }
#endif
}

static void *
run(void *unused)
{
    if (memory >= 0) {
        keep_descriptors_apart();
        memory = open_memory();
        if (memory < 0) {
            return NULL;
        }
    }
#if PY_VERSION_HEX < 0x030B0000
    if (find_number_place() != number_place) {
        number_place = 0;
    }
#endif
    wake_promptly();
    /* Equal distances would meet a loop of the same length always in the same line. */
    double phase = 0;
    int64_t cost_ns = 0, learned_ns = 0;
    learning_ns = 0;
    while (!is_over) {
        phase += 0.6180339887498949;
        phase -= phase >= 1;
        int64_t least_ns = REST_PER_COST * cost_ns;
        int64_t rest_ns = (int64_t)((double)(least_ns > interval_ns ? least_ns : interval_ns) * (0.5 + phase));
        int64_t due_ns = now_ns(CLOCK_MONOTONIC) + rest_ns;
        for (; rest_ns > 0 && !is_over; rest_ns = due_ns - now_ns(CLOCK_MONOTONIC)) {
            struct timespec part = {.tv_nsec = rest_ns < LONGEST_REST_NS ? rest_ns : LONGEST_REST_NS};
            nanosleep(&part, NULL);
        }
        int is_noted = is_open;
        int64_t late_ns = now_ns(CLOCK_MONOTONIC) - due_ns;
        if (is_over || !sample(late_ns)) {
            break;
        }
        int64_t before_ns = spent_ns;
        spent_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
        learned_ns += learning_ns;
        /* Of the last rounds, with what falling asleep costs. What is learned is learned once, and would make the first ones rare. */
        int64_t passed_over_ns = learned_ns < MOST_LEARNING_NS ? learning_ns : 0;
        cost_ns += (spent_ns - before_ns - passed_over_ns - cost_ns) / COST_ROUNDS;
        learning_ns = 0;
        if (!is_noted) {
            row_count = 0;
            begun_ns = spent_ns;
        } else if (row_count >= most_rows) {
            thin_out();
        }
    }
    if (memory >= 0) {
        close(memory);
    }
    return NULL;
}

static void
forget(void)
{
    for (size_t each = 0; codes != NULL && each < code_count; each++) {
        free_code(&codes[each]);
    }
    free(rows);
    free(codes);
    free(stacks);
    free(places);
    free(code_slots);
    free(stack_slots);
    free(threads);
    rows = NULL;
    codes = NULL;
    stacks = NULL;
    places = NULL;
    code_slots = stack_slots = NULL;
    threads = NULL;
    row_count = room = code_count = stack_count = place_count = place_room = 0;
    thread_count = 0;
    is_sampling = 0;
}

/* A text as Python has it. */
static PyObject *
text_of(const Text *text)
{
    PyObject *made = text->bytes == NULL ? NULL : PyUnicode_FromKindAndData(text->kind, text->bytes, text->length);
    if (made == NULL) {
        PyErr_Clear();
    }
    return made == NULL ? PyUnicode_FromString("") : made;
}

/* Whether an attribute of Python's object is what was read; takes the reference to what was read. */
static int
agrees(PyObject *object, const char *name, PyObject *read)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    int is_equal = value != NULL && read != NULL ? PyObject_RichCompareBool(value, read, Py_EQ) : 0;
    Py_XDECREF(value);
    Py_XDECREF(read);
    return is_equal > 0;
}

/* Whether Python says the same of the calling thread as its memory, as it is read here; sets no exception. */
static int
agrees_with_python(uintptr_t own, const Place *found, int depth)
{
    PyFrameObject *frame = PyThreadState_GetFrame((PyThreadState *)own);
    int each = 0, is_equal = 1;
    for (; is_equal && frame != NULL && each < depth; each++) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        const Code *read = &codes[found[each].code];
        PyObject *object = (PyObject *)code;
        is_equal = (uintptr_t)code == read->address
            && agrees((PyObject *)frame, "f_lasti", PyLong_FromLong(found[each].instruction))
            && agrees(object, "co_filename", text_of(&read->texts[0])) && agrees(object, "co_name", text_of(&read->texts[1]))
#if PY_VERSION_HEX >= 0x030B0000
            && agrees(object, "co_qualname", text_of(&read->texts[2]))
#endif
            && agrees(object, "co_firstlineno", PyLong_FromLong(read->first_line))
            && agrees(object, "co_linetable", PyBytes_FromStringAndSize(read->table.bytes, read->table.length));
        Py_DECREF(code);
        PyFrameObject *before = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = before;
    }
    is_equal = is_equal && each == depth && (frame == NULL || depth == MOST_FRAMES);
    Py_XDECREF(frame);
    PyErr_Clear();
    return is_equal;
}

/* Why memory cannot be read here; NULL where it can. */
static const char *
problem_of_reading(PyThreadState *own)
{
    int there = 1, copy = 0;
    if (own->interp != interpreter) {
        return "not the main interpreter";
    }
    if ((!peek((uintptr_t)&there, &copy, sizeof(copy)) || !copy) && ((memory = open_memory()) < 0
        || !peek((uintptr_t)&there, &copy, sizeof(copy)) || !copy)) {
        return "memory";
    }
    if (peek(8, &copy, sizeof(copy))) {
        return "memory that is not there";
    }
    uintptr_t at = 0;
    PyThreadState state;
    int is_found = 0, is_read = peek((uintptr_t)THREADS(interpreter), &at, sizeof(at));
    for (int passed = 0; is_read && at && passed < MOST_THREADS && !is_found; passed++) {
        is_read = peek(at, &state, sizeof(state)) && state.interp == interpreter;
        is_found = is_read && at == (uintptr_t)own;
        at = (uintptr_t)state.next;
    }
    if (!is_found || state.thread_id != (unsigned long)pthread_self()) {
        return "threads";
    }
#if PY_VERSION_HEX < 0x030B0000
    number_place = find_number_place();
#endif
    if (native_of(&state) != syscall(SYS_gettid) || cpu_ns_of(native_of(&state)) <= 0) {
        return "clocks";
    }
    Place found[MOST_FRAMES];
    Top top;
    Frame first, last;
    Lock lock;
    int depth = peek_top((uintptr_t)own, &state, &top) ? walk(&top, NOT_KNOWN, found, &first, &last) : FAILED;
    if (depth <= 0 || !is_still_there((uintptr_t)own, &top, &first, &lock) || !agrees_with_python((uintptr_t)own, found, depth)) {
        return "frames";
    }
    if (!holds((uintptr_t)own, &lock)) {
        return "lock";
    }
    return NULL;
}

/* Begin, with as many nanoseconds between two rounds, and the most samples; a text, why it cannot, or None. Until `note` is called
   the rounds serve to learn code, which takes several times as long as a round that meets none. */
static PyObject *
start(PyObject *module, PyObject *args)
{
    long long wanted, most;
    if (!PyArg_ParseTuple(args, "LL", &wanted, &most)) {
        return NULL;
    }
    if (is_sampling && owner != getpid()) {
        /* A fork of a process that sampled: its thread is not here. */
        forget();
    }
    if (is_sampling) {
        return PyUnicode_FromString("it runs already");
    }
    codes = calloc(MOST_CODES, sizeof(Code));
    stacks = calloc(MOST_STACKS, sizeof(Stack));
    code_slots = calloc(SLOTS, sizeof(int32_t));
    stack_slots = calloc(SLOTS, sizeof(int32_t));
    threads = calloc(THREAD_SLOTS, sizeof(Thread));
    if (codes == NULL || stacks == NULL || code_slots == NULL || stack_slots == NULL || threads == NULL) {
        forget();
        return PyErr_NoMemory();
    }
    interval_ns = wanted;
    most_rows = (size_t)most;
    ahead_count = 0;
    spent_ns = begun_ns = 0;
    owner = getpid();
    is_over = is_open = 0;
    memory = -1;
    sem_init(&news, 0, 0);
    interpreter = PyInterpreterState_Main();
#if PY_VERSION_HEX >= 0x030C0000
    lock_address = (uintptr_t)interpreter->ceval.gil;
#else
    lock_address = (uintptr_t)&_PyRuntime.ceval.gil;
#endif
    const char *problem = problem_of_reading(PyThreadState_Get());
    if (memory >= 0) {
        /* Open again in the other thread, which has descriptors of its own. */
        close(memory);
    }
    if (problem == NULL) {
        sigset_t every, before;
        sigfillset(&every);
        pthread_sigmask(SIG_SETMASK, &every, &before);
        is_sampling = pthread_create(&sampling, NULL, run, NULL) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        problem = is_sampling ? NULL : "no thread";
    }
    if (problem != NULL) {
        forget();
        return PyUnicode_FromString(problem);
    }
    Py_RETURN_NONE;
}

/* Keep the samples from here on. */
static PyObject *
note(PyObject *module, PyObject *unused)
{
    is_open = 1;
    Py_RETURN_NONE;
}

/* Wait without the lock until a thread comes that was not seen before, as many seconds at most. */
static PyObject *
wait_for_news(PyObject *module, PyObject *args)
{
    double seconds;
    if (!PyArg_ParseTuple(args, "d", &seconds)) {
        return NULL;
    }
    if (is_sampling && owner == getpid()) {
        int64_t until_ns = now_ns(CLOCK_REALTIME) + (int64_t)(seconds * 1e9);
        struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
        Py_BEGIN_ALLOW_THREADS
        sem_timedwait(&news, &until);
        while (sem_trywait(&news) == 0) {
        }
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

#define COLUMN(type, field) column_of(offsetof(Row, field), sizeof(type))

static PyObject *
column_of(size_t offset, size_t size)
{
    PyObject *column = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(row_count * size));
    for (size_t each = 0; column != NULL && each < row_count; each++) {
        memcpy(PyBytes_AS_STRING(column) + each * size, (char *)&rows[each] + offset, size);
    }
    return column;
}

static PyObject *
described_thread(size_t number)
{
    for (size_t each = 0; each < THREAD_SLOTS; each++) {
        if (threads[each].ident && threads[each].number == (int32_t)number) {
            return PyLong_FromUnsignedLong((unsigned long)threads[each].ident);
        }
    }
    return PyLong_FromLong(0);
}

static PyObject *
described_code(size_t number)
{
    const Code *code = &codes[number];
    PyObject *file = text_of(&code->texts[0]), *name = text_of(&code->texts[1]), *full_name = text_of(&code->texts[2]);
    if (file == NULL || name == NULL || full_name == NULL) {
        Py_XDECREF(file);
        Py_XDECREF(name);
        Py_XDECREF(full_name);
        return NULL;
    }
    return Py_BuildValue("NNNiy#", file, name, full_name, code->first_line, code->table.bytes, code->table.length);
}

static PyObject *
described_stack(size_t number)
{
    return PyBytes_FromStringAndSize((char *)&places[stacks[number].first], (Py_ssize_t)(stacks[number].depth * sizeof(Place)));
}

static PyObject *
list_of(size_t count, PyObject *(*described)(size_t))
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t each = 0; list != NULL && each < count; each++) {
        PyObject *item = described(each);
        if (item == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)each, item);
        }
    }
    return list;
}

/* End. None where nothing was begun in this process, else a tuple: the nanoseconds between rounds, the processor
   time they took; columns as this machine writes them: Unix nanoseconds and microseconds of processor time of the thread,
   int64, numbers of thread and stack, how many microseconds the round came late, and how often Python's lock had been handed over, if
   the thread held it, else -1, int32; lists: what pthread_self returns in each thread; file, name, qualified name, first line and
   table of lines of each code object; numbers of code and instruction of each stack, int32, the innermost first. */
static PyObject *
stop(PyObject *module, PyObject *unused)
{
    if (!is_sampling || owner != getpid()) {
        forget();
        Py_RETURN_NONE;
    }
    is_over = 1;
    /* Only one call ends the thread. */
    is_sampling = 0;
    Py_BEGIN_ALLOW_THREADS
    sem_post(&news);
    pthread_join(sampling, NULL);
    Py_END_ALLOW_THREADS
    PyObject *result = Py_BuildValue(
        "LLNNNNNNNNN", (long long)interval_ns, (long long)(spent_ns - begun_ns), COLUMN(int64_t, t_ns), COLUMN(int64_t, cpu_us),
        COLUMN(int32_t, thread), COLUMN(int32_t, stack), COLUMN(int32_t, late_us), COLUMN(int32_t, held),
        list_of((size_t)thread_count, described_thread), list_of(code_count, described_code), list_of(stack_count, described_stack));
    forget();
    return result;
}

static PyMethodDef functions[] = {
    {"start", start, METH_VARARGS, NULL},
    {"note", note, METH_NOARGS, NULL},
    {"wait", wait_for_news, METH_VARARGS, NULL},
    {"stop", stop, METH_NOARGS, NULL},
    {NULL},
};

#endif

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "stacks",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit_stacks(void)
{
    return PyModule_Create(&definition);
}
