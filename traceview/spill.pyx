# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Keeps large arrays of numpy in files where memory is limited: an allocator of numpy (its enhancement proposal 49).

An array that still fits under the limit is anonymous memory, one that does not is a mapped file. The file has no name from
the moment it exists, so nothing is left behind, however the process ends. Its blocks are taken from the disk before it is
mapped: a full disk is an error of the allocation, and not the end of the process at the first write.

For Linux, whose accounts it reads.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.errno cimport ENAMETOOLONG, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset, strcpy
from posix.fcntl cimport O_RDONLY, open as open_file
from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap
)
from posix.unistd cimport close, pread, unlink

cdef extern from "<stdlib.h>" nogil:
    int mkstemp(char* template)
    int64_t strtoll(const char* text, char** end, int base)

cdef extern from "<fcntl.h>" nogil:
    int posix_fallocate(int file, int64_t offset, int64_t length)

cdef extern from "<unistd.h>" nogil:
    int64_t sysconf(int name)
    int _SC_PAGESIZE

cdef extern from "<sys/vfs.h>" nogil:
    struct statfs_result "statfs":
        int64_t f_type
    int statfs(const char* path, statfs_result* found)

# The handler of numpy (`numpy/ndarraytypes.h`), whose layout is part of its binary interface since numpy 1.22.
ctypedef struct Allocator:
    void* ctx
    void* (*malloc)(void*, size_t) noexcept nogil
    void* (*calloc)(void*, size_t, size_t) noexcept nogil
    void* (*realloc)(void*, void*, size_t) noexcept nogil
    void (*free)(void*, void*, size_t) noexcept nogil

ctypedef struct Handler:
    char name[127]
    uint8_t version
    Allocator allocator

# Gives the handler before; NULL, and an exception, if numpy takes none.
ctypedef object (*SetHandler)(object)

cdef enum:
    SET_HANDLER = 304  # the place of PyDataMem_SetHandler in numpy's table of functions, fixed since numpy 1.22
    HEAD = 64  # bytes before each array, which so stays aligned to a line of the processor's cache
    LONGEST_PATH = 4096
    MOST_KEPT = 64

cdef int64_t MOST_KEPT_BYTES = 64 << 20  # of each kind

cdef extern from *:
    """
    #define IN_MEMORY_1 0x01021994  /* tmpfs */
    #define IN_MEMORY_2 0x858458f6  /* ramfs */
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    static void one_heap(void) { mallopt(M_ARENA_MAX, 1); }
    #else
    static void one_heap(void) {}
    #endif
    """
    int64_t IN_MEMORY_1, IN_MEMORY_2
    void one_heap() nogil

cdef struct Head:
    size_t size  # of the array
    size_t mapped  # bytes of its own mapping; 0: it lies in the heap
    bint in_file

cdef struct Kept:
    # Mappings that were given back, the latest last: a new one costs a page fault for each of its pages.
    Head* blocks[MOST_KEPT]
    int count
    int64_t bytes

cdef struct State:
    int64_t limit  # bytes of private memory up to which an array is anonymous
    int64_t page
    size_t least  # bytes of the smallest array that is spilled
    int statm
    int failure  # the errno of the last file that could not be made
    int64_t missing  # its size
    int64_t spilled  # bytes in files now
    int64_t most_spilled
    char template[LONGEST_PATH]

    Kept kept[2]  # anonymous ones, and those of files

cdef State state
cdef Handler handler
cdef bint is_made = False


cdef int64_t private_bytes() noexcept nogil:
    # The private memory of this process, as RLIMIT_DATA counts it: the sixth number.
    cdef char text[256]
    cdef char* at = text
    cdef int64_t number = 0
    cdef int i
    cdef int64_t length = pread(state.statm, text, 255, 0)
    if length <= 0:
        return 0
    text[length] = 0
    for i in range(6):
        number = strtoll(at, &at, 10)
    return number * state.page


cdef void unmap(Head* head) noexcept nogil:
    if head.in_file:
        state.spilled -= head.mapped
    munmap(head, head.mapped)


cdef Head* taken_out(Kept* kept, int place) noexcept nogil:
    cdef Head* head = kept.blocks[place]
    cdef int i
    kept.bytes -= head.mapped
    kept.count -= 1
    for i in range(place, kept.count):
        kept.blocks[i] = kept.blocks[i + 1]
    return head


cdef void keep(Head* head) noexcept nogil:
    cdef Kept* kept = &state.kept[head.in_file]
    if <int64_t> head.mapped > MOST_KEPT_BYTES:
        unmap(head)
        return
    while kept.count == MOST_KEPT or kept.bytes + <int64_t> head.mapped > MOST_KEPT_BYTES:
        unmap(taken_out(kept, 0))
    kept.blocks[kept.count] = head
    kept.count += 1
    kept.bytes += head.mapped


cdef void forget(Kept* kept) noexcept nogil:
    while kept.count:
        unmap(taken_out(kept, kept.count - 1))


cdef void* reused(Kept* kept, size_t size, size_t total, bint is_zeroed) noexcept nogil:
    cdef int i
    cdef Head* head
    for i in range(kept.count - 1, -1, -1):
        if total <= kept.blocks[i].mapped <= total + total // 4:
            head = taken_out(kept, i)
            head.size = size
            if is_zeroed:
                memset(<char*> head + HEAD, 0, size)
            return <char*> head + HEAD
    return NULL


cdef void* mapped(size_t size, bint is_zeroed) noexcept nogil:
    cdef size_t total = (size + HEAD + state.page - 1) // state.page * state.page
    cdef char path[LONGEST_PATH]
    cdef int file, status
    cdef void* block = reused(&state.kept[0], size, total, is_zeroed)
    cdef bint in_file = False
    if block != NULL:
        return block
    block = MAP_FAILED
    if state.kept[0].count and private_bytes() + <int64_t> total > state.limit:
        forget(&state.kept[0])
    if private_bytes() + <int64_t> total <= state.limit:
        block = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if block == MAP_FAILED:
        block = reused(&state.kept[1], size, total, is_zeroed)
        if block != NULL:
            return block
        block = MAP_FAILED
        strcpy(path, state.template)
        file = mkstemp(path)
        if file < 0:
            state.failure, state.missing = errno, total
            return NULL
        unlink(path)
        status = posix_fallocate(file, 0, total)
        if status == 0:
            block = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
            status = errno if block == MAP_FAILED else 0
        close(file)
        if status:
            state.failure, state.missing = status, total
            return NULL
        in_file = True
        state.spilled += total
        state.most_spilled = max(state.most_spilled, state.spilled)
    cdef Head* head = <Head*> block
    head.size, head.mapped, head.in_file = size, total, in_file
    return <char*> block + HEAD


cdef void* taken(void* ctx, size_t size) noexcept nogil:
    cdef Head* head
    if size >= state.least:
        return mapped(size, False)
    head = <Head*> malloc(size + HEAD)
    if head == NULL:
        return NULL
    head.size, head.mapped, head.in_file = size, 0, False
    return <char*> head + HEAD


cdef void* taken_zeroed(void* ctx, size_t count, size_t each) noexcept nogil:
    cdef Head* head
    cdef size_t size = count * each
    if size >= state.least:
        return mapped(size, True)
    head = <Head*> calloc(1, size + HEAD)
    if head == NULL:
        return NULL
    head.size = size
    return <char*> head + HEAD


cdef void given_back(void* ctx, void* array, size_t size) noexcept nogil:
    cdef Head* head
    if array == NULL:
        return
    head = <Head*> (<char*> array - HEAD)
    if head.mapped == 0:
        free(head)
        return
    keep(head)


cdef void* resized(void* ctx, void* array, size_t size) noexcept nogil:
    cdef Head* head
    cdef void* new
    if array == NULL:
        return taken(ctx, size)
    head = <Head*> (<char*> array - HEAD)
    if head.mapped == 0 and size < state.least:
        head = <Head*> realloc(head, size + HEAD)
        if head == NULL:
            return NULL
        head.size = size
        return <char*> head + HEAD
    new = taken(ctx, size)
    if new != NULL:
        memcpy(new, array, min(size, head.size))
        given_back(ctx, array, head.size)
    return new


cdef SetHandler set_handler():
    try:
        from numpy._core import _multiarray_umath as numpy_core
    except ImportError:
        from numpy.core import _multiarray_umath as numpy_core
    cdef void** functions = <void**> PyCapsule_GetPointer(numpy_core._ARRAY_API, NULL)
    return <SetHandler> functions[SET_HANDLER]


cdef prepare():
    global is_made
    if is_made:
        return
    state.page = sysconf(_SC_PAGESIZE)
    state.statm = open_file(b"/proc/self/statm", O_RDONLY)
    if state.statm < 0:
        raise OSError(errno, "/proc/self/statm cannot be read")
    strcpy(handler.name, b"traceview_spill")
    handler.version = 1
    handler.allocator.ctx = NULL
    handler.allocator.malloc = taken
    handler.allocator.calloc = taken_zeroed
    handler.allocator.realloc = resized
    handler.allocator.free = given_back
    is_made = True


def begin(int64_t limit, bytes folder, int64_t least = 1 << 18):
    """Keep arrays that this thread makes in files in `folder`, where private memory would exceed `limit` bytes.

    `least`: bytes of the smallest such array; each is a mapping, of which a process may have 65,530. Gives what `end` needs. Raises `OSError` if the accounts of this process cannot be read.
    """
    # mkstemp(3) puts a name in place of the last six letters.
    cdef bytes template = folder + b"/traceview-XXXXXX"
    if len(template) >= LONGEST_PATH:
        raise OSError(ENAMETOOLONG, "the path is too long")
    prepare()
    strcpy(state.template, template)
    state.limit, state.least = limit, least
    state.failure, state.missing, state.most_spilled = 0, 0, state.spilled
    capsule = PyCapsule_New(&handler, b"mem_handler", NULL)
    return set_handler()(capsule)


def end(before):
    """Make arrays as before."""
    set_handler()(before)
    forget(&state.kept[0])
    forget(&state.kept[1])


def share_one_heap():
    """Let all threads take memory from one heap: what one of them gives back, others can use."""
    one_heap()


def private_memory():
    """The private memory of this process in bytes, as the kernel limits it (`RLIMIT_DATA`); raises `OSError` as `begin`."""
    prepare()
    return private_bytes()


def failure():
    """The errno and the size in bytes of the last array for which no file could be made; 0 and 0 without."""
    return state.failure, state.missing


def most_spilled():
    """The bytes that lay in files, at most."""
    return state.most_spilled


def is_in_memory(bytes folder):
    """Whether the files of a folder lie in memory themselves."""
    cdef statfs_result found
    if statfs(folder, &found) != 0:
        return False
    return found.f_type & 0xFFFFFFFF in (IN_MEMORY_1, IN_MEMORY_2)
