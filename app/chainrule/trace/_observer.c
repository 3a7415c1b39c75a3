/* The common path of journal.py, gradients.py, observer.py and assemble.py without the interpreter.
 *
 * Each function does what the Python method of its name does. Whatever is not common (a plan, the level aten,
 * subclasses of tensors, ops in place, backward passes by hand, errors) it leaves to that method before it has changed
 * anything; the class keeps it under the name `python_…` (native.py). Both write the same rows, so they can take turns.
 *
 * No header of PyTorch is used: a tensor is read by PyTorch's own getters, which are called without looking them up.
 * While they are, torch functions are switched off, as they are in the Python methods. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <structmember.h>

#include <stdbool.h>
#include <stdint.h>

#ifndef SOURCE
#define SOURCE "" /* the SHA-256 of this file, as the build hook gives it */
#endif

enum { NO_ROW = -1, FAILED = -2, MAX_INPUTS = 64, START_ROOM = 256 };

/* ------------------------------------------------------------------------------------------------ what bind() found */

struct getter {
    PyObject *descriptor;
    descrgetfunc get;
};

static struct getter version, grad_fn, requires_grad, dtype, shape, output_nr, layout, is_meta, is_nested;
static PyCFunction data_ptr, numel, dim, is_floating_point, blind_enter, blind_exit;
static PyTypeObject *tensor_type, *parameter_type;
static PyTypeObject *op_type, *tensor_row_type, *node_type, *kind_type; /* made here */
static PyObject *blindness; /* DisableTorchFunction */
static PyObject *strided, *clock_now, *dispatch_modes, *saved_hooks, *wrapped, *batched; /* of torch, and time */
static PyObject *views, *rectifiers, *leaf_class, *kinds, *saved_names, *saved_tensors, *is_user_file, *attributes;
static PyObject *scopes, *entry_points;
static PyObject *replicated_type; /* DistributedDataParallel */
static long small; /* SMALL */

#define NAMES(X)                                                                                                       \
    X(_after_leaf) X(_arrive) X(_before_node) X(_changed_elsewhere) X(_current_module) X(_failed) X(_local_tensor)     \
    X(add_unit_statistics) X(copy) X(error) X(f_back) X(metadata) X(module) X(next_functions) X(node_called)           \
    X(_keep_values) X(_room) X(_summarize_row) X(_take_elsewhere) X(python___torch_function__)                         \
    X(python__module_begins) X(python__module_ends) X(python_own) X(register_hook) X(register_prehook) X(sharded)      \
    X(take_at_once) X(python__add_leaf) X(_tensors) X(variable) X(write_dead_fraction) X(path) X(__dict__)             \
    X(__name__) X(forward) X(backward) X(gradient) X(saved) X(id) X(name) X(phase) X(attributes) X(inputs) X(outputs)  \
    X(twin) X(flops) X(bytes) X(source) X(role) X(shape) X(dtype) X(producer) X(consumers) X(gradient_of) X(note)      \
    X(co_filename) X(follows)
#define DECLARE(name) static PyObject *s_##name;
NAMES(DECLARE)
static PyObject *s_empty;

static PyObject *ask(const struct getter *getter, PyObject *object) {
    return getter->get(getter->descriptor, object, (PyObject *)Py_TYPE(object));
}

static bool is_plain(PyObject *object) { return Py_TYPE(object) == tensor_type || Py_TYPE(object) == parameter_type; }

/* 1, 0, or FAILED. */
static int truth(PyObject *answer) {
    int value = answer == NULL ? FAILED : answer == Py_True ? 1 : answer == Py_False ? 0 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    return value < 0 ? FAILED : value;
}

/* FAILED with an error set, or the number. */
static long number(PyObject *answer) {
    long value = answer == NULL ? FAILED : PyLong_AsLong(answer);
    Py_XDECREF(answer);
    return value == -1 && PyErr_Occurred() ? FAILED : value;
}

static double now(void) {
    PyObject *answer = PyObject_CallNoArgs(clock_now);
    double value = answer == NULL ? -1 : PyFloat_AsDouble(answer);
    Py_XDECREF(answer);
    return value;
}

/* Torch functions are off from here to `see`. */
static PyObject *look_away(void) {
    PyObject *guard = PyObject_CallNoArgs(blindness);
    PyObject *entered = guard == NULL ? NULL : blind_enter(guard, NULL);
    if (entered == NULL) Py_CLEAR(guard);
    Py_XDECREF(entered);
    return guard;
}

/* Keeps an error that is set. */
static void see(PyObject *guard) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *left = blind_exit(guard, Py_None);
    Py_XDECREF(left);
    Py_DECREF(guard);
    PyErr_Restore(type, value, traceback);
}

static int append_number(PyObject *list, long value) {
    PyObject *object = PyLong_FromLong(value);
    int failed = object == NULL ? -1 : PyList_Append(list, object);
    Py_XDECREF(object);
    return failed;
}

static long number_at(PyObject *list, Py_ssize_t place) {
    PyObject *item = PyList_GetItem(list, place);
    return item == NULL ? FAILED : PyLong_AsLong(item);
}

/* The version of a tensor's memory; NO_ROW for one of inference mode, FAILED for another error. */
static long version_of(PyObject *tensor) {
    long found = number(ask(&version, tensor));
    if (found == FAILED && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
        PyErr_Clear();
        found = NO_ROW;
    }
    return found;
}

/* See journal.py; None where autograd refuses to tell. */
static PyObject *grad_fn_of(PyObject *tensor) {
    PyObject *node = ask(&grad_fn, tensor);
    if (node == NULL && PyErr_ExceptionMatches(PyExc_RuntimeError)) {
        PyErr_Clear();
        node = Py_None;
        Py_INCREF(node);
    }
    return node;
}

/* 1 and where the elements are, 0 for a tensor without plain memory, or FAILED. */
static int address(PyObject *tensor, void **start) {
    PyObject *found = ask(&layout, tensor);
    if (found == NULL) return FAILED;
    Py_DECREF(found); /* one of a few, which stay */
    if (found != strided) return 0;
    int lacks = truth(ask(&is_meta, tensor));
    if (lacks == 0) lacks = truth(ask(&is_nested, tensor));
    if (lacks == 0) lacks = truth(PyObject_CallFunctionObjArgs(wrapped, tensor, NULL));
    if (lacks == 0) lacks = truth(PyObject_CallFunctionObjArgs(batched, tensor, NULL));
    if (lacks != 0) return lacks == FAILED ? FAILED : 0;
    PyObject *answer = data_ptr(tensor, NULL);
    if (answer == NULL) return FAILED;
    *start = PyLong_AsVoidPtr(answer);
    Py_DECREF(answer);
    return PyErr_Occurred() ? FAILED : 1;
}

/* Whether two tensors have the same dtype, number of elements and memory. */
static int same_memory(PyObject *tensor, PyObject *other) {
    PyObject *mine = ask(&dtype, tensor), *its = ask(&dtype, other);
    bool equal = mine == its; /* of a few, which stay */
    bool failed = mine == NULL || its == NULL;
    Py_XDECREF(mine);
    Py_XDECREF(its);
    if (failed) return FAILED;
    if (!equal) return 0;
    void *start, *its_start;
    int known = address(tensor, &start);
    if (known != 1) return known;
    long count = number(numel(tensor, NULL)), its_count = count == FAILED ? FAILED : number(numel(other, NULL));
    if (count != its_count || its_count == FAILED) return its_count == FAILED ? FAILED : 0;
    known = address(other, &its_start);
    return known == 1 ? start == its_start : known;
}

/* ----------------------------------------------------------------------------------------------- objects by address */

struct entry {
    PyObject *key, *held;
    long row, version;
    size_t order; /* of its arrival */
};

struct table {
    struct entry *entries;
    size_t used, room;
};

/* The entry of a key, or the free one where it belongs. The table has room. */
static struct entry *entry_of(const struct table *table, PyObject *key) {
    size_t place = (size_t)(((uint64_t)(uintptr_t)key >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (table->room - 1);
    while (table->entries[place].key != NULL && table->entries[place].key != key)
        place = (place + 1) & (table->room - 1);
    return &table->entries[place];
}

static int make_room(struct table *table) {
    if (table->used * 2 < table->room) return 0;
    struct table larger = {NULL, table->used, table->room ? table->room * 2 : START_ROOM};
    larger.entries = PyMem_Calloc(larger.room, sizeof(struct entry));
    if (larger.entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < table->room; i++)
        if (table->entries[i].key != NULL) *entry_of(&larger, table->entries[i].key) = table->entries[i];
    PyMem_Free(table->entries);
    *table = larger;
    return 0;
}

/* Takes over `held`. */
static int put(struct table *table, PyObject *key, PyObject *held, long row, long version_now) {
    if (make_room(table) != 0) {
        Py_DECREF(held);
        return -1;
    }
    struct entry *entry = entry_of(table, key);
    PyObject *before = entry->held;
    size_t order = entry->key == NULL ? table->used++ : entry->order;
    *entry = (struct entry){key, held, row, version_now, order};
    Py_XDECREF(before);
    return 0;
}

/* The entry of this very object while it lives, if weak references are held; NULL without an error for another one. */
static struct entry *entry_of_live(const struct table *table, PyObject *object) {
    if (table->room == 0) return NULL;
    struct entry *entry = entry_of(table, object);
    if (entry->key == NULL) return NULL;
    PyObject *found = PyObject_CallNoArgs(entry->held);
    Py_XDECREF(found);
    return found == object ? entry : NULL;
}

static void empty(struct table *table) {
    struct table old = *table;
    *table = (struct table){NULL, 0, 0};
    for (size_t i = 0; i < old.room; i++) Py_XDECREF(old.entries[i].held);
    PyMem_Free(old.entries);
}

/* ------------------------------------------------------------------------------------------------------------- rows */

/* A structure begins with PyObject_HEAD and its references: how many there are up to `last`, and the first. */
#define REFERENCES(type, last) ((offsetof(type, last) - sizeof(PyObject)) / sizeof(PyObject *) + 1)

static PyObject **references(PyObject *object) { return (PyObject **)(object + 1); }

static int visit_references(PyObject *object, size_t count, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    for (size_t i = 0; i < count; i++) Py_VISIT(references(object)[i]);
    return 0;
}

static int clear_references(PyObject *object, size_t count) {
    for (size_t i = 0; i < count; i++) Py_CLEAR(references(object)[i]);
    return 0;
}

/* Rows are not tracked by the garbage collector: nothing in them leads back to them. */
static void free_row(PyObject *object, size_t count) {
    PyTypeObject *type = Py_TYPE(object);
    clear_references(object, count);
    PyObject_Free(object);
    Py_DECREF(type);
}

static void free_tracked(PyObject *object, size_t count) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear_references(object, count);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* The functions of the garbage collector for a type that it tracks. */
#define TRACKED(type, lower, last)                                                                                     \
    static int lower##_traverse(PyObject *object, visitproc visit, void *arg) {                                        \
        return visit_references(object, REFERENCES(type, last), visit, arg);                                           \
    }                                                                                                                  \
    static int lower##_clear(PyObject *object) { return clear_references(object, REFERENCES(type, last)); }            \
    static void lower##_free(PyObject *object) {                                                                       \
        free_tracked(object, REFERENCES(type, last));                                                                  \
    }

typedef struct {
    PyObject_HEAD
    PyObject *name, *phase, *attributes, *inputs, *outputs, *source;
    int module, twin;
    double microseconds;
    char by_hand;
} OpRow;

static void op_free(PyObject *object) { free_row(object, REFERENCES(OpRow, source)); }

static PyObject *new_op(PyObject *name, PyObject *phase, int module, PyObject *given, PyObject *inputs,
                        PyObject *outputs, int twin, PyObject *source, double microseconds, bool by_hand) {
    OpRow *self = PyObject_New(OpRow, op_type);
    if (self == NULL) return NULL;
    self->name = Py_NewRef(name);
    self->phase = Py_NewRef(phase);
    self->attributes = Py_NewRef(given);
    self->inputs = Py_NewRef(inputs);
    self->outputs = Py_NewRef(outputs);
    self->source = Py_NewRef(source);
    self->module = module;
    self->twin = twin;
    self->microseconds = microseconds;
    self->by_hand = by_hand;
    return (PyObject *)self;
}

static PyObject *op_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"name", "phase", "module", "attributes", "inputs", "outputs", "twin", "source",
                            "microseconds", "by_hand", NULL};
    PyObject *name, *phase, *given, *inputs, *outputs, *source = Py_None;
    int module, twin = NO_ROW, by_hand = 0;
    double microseconds = 0;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOiOOO|iOdp", names, &name, &phase, &module, &given, &inputs,
                                     &outputs, &twin, &source, &microseconds, &by_hand))
        return NULL;
    return new_op(name, phase, module, given, inputs, outputs, twin, source, microseconds, by_hand);
}

#define MEMBER(type, kind, name) {#name, kind, offsetof(type, name), 0, NULL}

static PyMemberDef op_members[] = {
    MEMBER(OpRow, T_OBJECT, name), MEMBER(OpRow, T_OBJECT, phase), MEMBER(OpRow, T_INT, module),
    MEMBER(OpRow, T_OBJECT, attributes), MEMBER(OpRow, T_OBJECT, inputs), MEMBER(OpRow, T_OBJECT, outputs),
    MEMBER(OpRow, T_INT, twin), MEMBER(OpRow, T_OBJECT, source), MEMBER(OpRow, T_DOUBLE, microseconds),
    MEMBER(OpRow, T_BOOL, by_hand), {NULL, 0, 0, 0, NULL},
};
static PyType_Slot op_slots[] = {
    {Py_tp_new, op_new}, {Py_tp_dealloc, op_free}, {Py_tp_members, op_members}, {0, NULL},
};
static PyType_Spec op_spec = {"chainrule.trace._observer.OpRow", sizeof(OpRow), 0, Py_TPFLAGS_DEFAULT, op_slots};

typedef struct {
    PyObject_HEAD
    PyObject *name, *role, *shape, *dtype, *note;
    int module, producer, statistics, gradient_of, share_of;
} TensorRow;

static void tensor_row_free(PyObject *object) { free_row(object, REFERENCES(TensorRow, note)); }

static PyObject *tensor_row_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"name", "role", "shape", "dtype", "module", "producer", "statistics", "gradient_of",
                            "share_of", "note", NULL};
    PyObject *name, *role, *size, *kind, *note = Py_None;
    int module, producer, statistics, gradient_of = NO_ROW, share_of = NO_ROW;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOOiii|iiO", names, &name, &role, &size, &kind, &module,
                                     &producer, &statistics, &gradient_of, &share_of, &note))
        return NULL;
    TensorRow *self = PyObject_New(TensorRow, tensor_row_type);
    if (self == NULL) return NULL;
    self->name = Py_NewRef(name);
    self->role = Py_NewRef(role);
    self->shape = Py_NewRef(size);
    self->dtype = Py_NewRef(kind);
    self->note = Py_NewRef(note);
    self->module = module;
    self->producer = producer;
    self->statistics = statistics;
    self->gradient_of = gradient_of;
    self->share_of = share_of;
    return (PyObject *)self;
}

static PyMemberDef tensor_row_members[] = {
    MEMBER(TensorRow, T_OBJECT, name), MEMBER(TensorRow, T_OBJECT, role), MEMBER(TensorRow, T_OBJECT, shape),
    MEMBER(TensorRow, T_OBJECT, dtype), MEMBER(TensorRow, T_INT, module), MEMBER(TensorRow, T_INT, producer),
    MEMBER(TensorRow, T_INT, statistics), MEMBER(TensorRow, T_INT, gradient_of), MEMBER(TensorRow, T_INT, share_of),
    MEMBER(TensorRow, T_OBJECT, note), {NULL, 0, 0, 0, NULL},
};
static PyType_Slot tensor_row_slots[] = {
    {Py_tp_new, tensor_row_new}, {Py_tp_dealloc, tensor_row_free}, {Py_tp_members, tensor_row_members}, {0, NULL},
};
static PyType_Spec tensor_row_spec = {
    "chainrule.trace._observer.TensorRow", sizeof(TensorRow), 0, Py_TPFLAGS_DEFAULT, tensor_row_slots,
};

/* See ops.py. */
typedef struct {
    PyObject_HEAD
    PyObject *name, *role, *parameters;
    char silent, may_change, normalizes, is_collective, has_units;
} Kind;

static void kind_free(PyObject *object) { free_row(object, REFERENCES(Kind, parameters)); }

static PyObject *kind_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"name", "silent", "may_change", "normalizes", "is_collective", "role", "has_units",
                            "parameters", NULL};
    PyObject *name, *role, *parameters;
    int silent, may_change, normalizes, is_collective, has_units;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OppppOpO!", names, &name, &silent, &may_change, &normalizes,
                                     &is_collective, &role, &has_units, &PyTuple_Type, &parameters))
        return NULL;
    Kind *self = PyObject_New(Kind, kind_type);
    if (self == NULL) return NULL;
    self->name = Py_NewRef(name);
    self->role = Py_NewRef(role);
    self->parameters = Py_NewRef(parameters);
    self->silent = (char)silent;
    self->may_change = (char)may_change;
    self->normalizes = (char)normalizes;
    self->is_collective = (char)is_collective;
    self->has_units = (char)has_units;
    return (PyObject *)self;
}

#define FIXED(type, kind, name) {#name, kind, offsetof(type, name), READONLY, NULL}

static PyMemberDef kind_members[] = {
    FIXED(Kind, T_OBJECT, name), FIXED(Kind, T_OBJECT, role), FIXED(Kind, T_OBJECT, parameters),
    FIXED(Kind, T_BOOL, silent), FIXED(Kind, T_BOOL, may_change), FIXED(Kind, T_BOOL, normalizes),
    FIXED(Kind, T_BOOL, is_collective), FIXED(Kind, T_BOOL, has_units), {NULL, 0, 0, 0, NULL},
};
static PyType_Slot kind_slots[] = {
    {Py_tp_new, kind_new}, {Py_tp_dealloc, kind_free}, {Py_tp_members, kind_members}, {0, NULL},
};
static PyType_Spec kind_spec = {"chainrule.trace._observer.Kind", sizeof(Kind), 0, Py_TPFLAGS_DEFAULT, kind_slots};

/* ---------------------------------------------------------------------------------------------------------- journal */

typedef struct {
    PyObject_HEAD
    PyObject *ops, *tensors, *saved, *slab, *on_tensor, *plan, *_shapes;
    struct table live;
} Journal;

static int journal_traverse(PyObject *object, visitproc visit, void *arg) {
    return visit_references(object, REFERENCES(Journal, _shapes), visit, arg);
}

static int journal_clear(PyObject *object) { return clear_references(object, REFERENCES(Journal, _shapes)); }

static void journal_free(PyObject *object) {
    struct table live = ((Journal *)object)->live;
    free_tracked(object, REFERENCES(Journal, _shapes));
    empty(&live);
}

static PyObject *row_at(PyObject *rows, long row, PyTypeObject *type) {
    PyObject *found = rows == NULL ? NULL : PyList_GetItem(rows, row);
    if (found == NULL || Py_TYPE(found) == type) return found;
    PyErr_SetString(PyExc_TypeError, "a row of another kind");
    return NULL;
}

static TensorRow *tensor_at(Journal *self, long row) {
    return (TensorRow *)row_at(self->tensors, row, tensor_row_type);
}

static long find(Journal *self, PyObject *tensor) {
    struct entry *entry = entry_of_live(&self->live, tensor);
    if (entry == NULL) return PyErr_Occurred() ? FAILED : NO_ROW;
    long row = entry->row, before = entry->version;
    if (before < 0) return row;
    long is = number(ask(&version, tensor));
    if (is == FAILED || is == before) return is == FAILED ? FAILED : row;
    PyObject *known = PyLong_FromLong(row);
    if (known == NULL) return FAILED;
    row = number(PyObject_CallMethodObjArgs((PyObject *)self, s__changed_elsewhere, tensor, known, NULL));
    Py_DECREF(known);
    return row;
}

static int remember(Journal *self, PyObject *tensor, long row) {
    if (!is_plain(tensor)) {
        PyObject *local = PyObject_GetAttr(tensor, s__local_tensor);
        if (local == NULL) {
            if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
            PyErr_Clear();
        }
        int failed = 0;
        if (local != NULL && local != tensor) {
            int is_tensor = PyObject_IsInstance(local, (PyObject *)tensor_type);
            failed = is_tensor < 0 || (is_tensor && remember(self, local, row) != 0);
        }
        Py_XDECREF(local);
        if (failed) return -1;
    }
    long is = version_of(tensor);
    PyObject *reference = is == FAILED ? NULL : PyWeakref_NewRef(tensor, NULL);
    return reference == NULL ? -1 : put(&self->live, tensor, reference, row, is);
}

/* `source_row` if the tensor is a view of exactly the elements of `source`, else NO_ROW. */
static long same_values(PyObject *name, PyObject *tensor, PyObject *source, long source_row) {
    int is_view = PySet_Contains(views, name);
    int same = is_view == 1 ? same_memory(tensor, source) : is_view < 0 ? FAILED : 0;
    return same == FAILED ? FAILED : same ? source_row : NO_ROW;
}

/* The statistics of a row in another row of the slab, or taken anew; NO_ROW if they need Python. */
static long statistics_of(Journal *self, PyObject *tensor, long same) {
    long elements = number(numel(tensor, NULL));
    if (elements == FAILED) return FAILED;
    if (same != NO_ROW && elements > small) {
        TensorRow *source = tensor_at(self, same);
        if (source == NULL) return FAILED;
        if (source->statistics != NO_ROW) {
            PyObject *row = PyLong_FromLong(source->statistics);
            long copy = row == NULL ? FAILED : number(PyObject_CallMethodObjArgs(self->slab, s_copy, row, NULL));
            Py_XDECREF(row);
            return copy;
        }
    }
    PyObject *reader = PyObject_GetAttr(self->slab, s__summarize_row), *room = NULL, *place = NULL;
    if (reader != NULL && reader != Py_None) room = PyObject_GetAttr(self->slab, s__room);
    if (room != NULL) place = PyIter_Next(room);
    Py_XDECREF(room);
    if (place == NULL) {
        Py_XDECREF(reader);
        return PyErr_Occurred() ? FAILED
                                : number(PyObject_CallMethodObjArgs(self->slab, s_take_at_once, tensor, NULL));
    }
    PyObject *row = PyTuple_GetItem(place, 0), *index = PyTuple_GetItem(place, 1);
    PyObject *moments = PyTuple_GetItem(place, 2), *counts = PyTuple_GetItem(place, 3);
    int done = FAILED;
    if (counts != NULL)
        done = truth(PyObject_CallFunctionObjArgs(reader, tensor, moments, counts, index, NULL));
    Py_DECREF(reader);
    long taken = done == FAILED ? FAILED : done ? PyLong_AsLong(row) : 0;
    if (done == 0)
        taken = number(PyObject_CallMethodObjArgs(self->slab, s__take_elsewhere, place, tensor, NULL));
    else if (taken != FAILED && elements <= small) {
        PyObject *kept = PyObject_CallMethodObjArgs(self->slab, s__keep_values, row, tensor, NULL);
        Py_XDECREF(kept);
        if (kept == NULL) taken = FAILED;
    }
    Py_DECREF(place);
    return taken;
}

static long add_tensor(Journal *self, PyObject *tensor, PyObject *role, int module, int producer, PyObject *name,
                       long same) {
    long statistics = NO_ROW;
    if (is_plain(tensor) && self->plan == Py_None) {
        statistics = statistics_of(self, tensor, same);
        if (statistics == FAILED) return FAILED;
    }
    if (statistics == NO_ROW) {
        PyObject *added = PyObject_CallMethod((PyObject *)self, "python_add_tensor", "OOiiOl", tensor, role, module,
                                              producer, name, same);
        return number(added);
    }
    if (self->on_tensor != Py_None) {
        PyObject *told = PyObject_CallFunction(self->on_tensor, "NO",
                                               PyUnicode_FromFormat("t%zd", PyList_Size(self->tensors)), tensor);
        Py_XDECREF(told);
        if (told == NULL) return FAILED;
    }
    PyObject *size = ask(&shape, tensor), *kind = size == NULL ? NULL : ask(&dtype, tensor), *known = NULL;
    if (kind != NULL) {
        /* One tuple per shape spares the garbage collector the others: few shapes, many tensors. */
        known = PyDict_GetItemWithError(self->_shapes, size);
        Py_XINCREF(known);
        if (known == NULL && !PyErr_Occurred()) {
            known = PySequence_List(size);
            PyObject *list = known;
            known = list == NULL ? NULL : PyList_AsTuple(list);
            Py_XDECREF(list);
            if (known != NULL && PyDict_SetItem(self->_shapes, size, known) != 0) Py_CLEAR(known);
        }
    }
    Py_XDECREF(size);
    TensorRow *row = known == NULL ? NULL : PyObject_New(TensorRow, tensor_row_type);
    if (row == NULL) {
        Py_XDECREF(kind);
        Py_XDECREF(known);
        return FAILED;
    }
    row->name = Py_NewRef(name);
    row->role = Py_NewRef(role);
    row->shape = known;
    row->dtype = kind;
    row->note = Py_NewRef(Py_None);
    row->module = module;
    row->producer = producer;
    row->statistics = (int)statistics;
    row->gradient_of = row->share_of = NO_ROW;
    long place = (long)PyList_Size(self->tensors);
    int failed = PyList_Append(self->tensors, (PyObject *)row);
    Py_DECREF(row);
    return failed ? FAILED : place;
}

static long add_op(Journal *self, PyObject *op) {
    long row = (long)PyList_Size(self->ops);
    int failed = op == NULL ? -1 : PyList_Append(self->ops, op);
    Py_XDECREF(op);
    return failed ? FAILED : row;
}

static PyObject *row_or_error(long row) { return row == FAILED ? NULL : PyLong_FromLong(row); }

static PyObject *journal_find(PyObject *self, PyObject *tensor) { return row_or_error(find((Journal *)self, tensor)); }

static PyObject *journal_row_of(PyObject *self, PyObject *tensor) {
    struct entry *entry = entry_of_live(&((Journal *)self)->live, tensor);
    return entry == NULL && PyErr_Occurred() ? NULL : PyLong_FromLong(entry == NULL ? NO_ROW : entry->row);
}

static PyObject *journal_remember(PyObject *self, PyObject *arguments) {
    PyObject *tensor;
    long row;
    if (!PyArg_ParseTuple(arguments, "Ol", &tensor, &row) || remember((Journal *)self, tensor, row) != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *journal_add_tensor(PyObject *self, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"tensor", "role", "module", "producer", "name", "same_values_as", NULL};
    PyObject *tensor, *role, *name = s_empty;
    int module, producer = NO_ROW;
    long same = NO_ROW;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOi|iOl", names, &tensor, &role, &module, &producer, &name,
                                     &same))
        return NULL;
    return row_or_error(add_tensor((Journal *)self, tensor, role, module, producer, name, same));
}

static PyObject *journal_live_with(PyObject *object, PyObject *attribute) {
    struct table *live = &((Journal *)object)->live;
    size_t count = live->used;
    /* A copy, since the calls below may let others write into the table. */
    struct entry *entries = PyMem_Calloc(count + 1, sizeof(struct entry));
    if (entries == NULL) return PyErr_NoMemory();
    for (size_t i = 0; i < live->room; i++)
        if (live->entries[i].key != NULL) {
            entries[live->entries[i].order] = live->entries[i];
            Py_INCREF(live->entries[i].held);
        }
    PyObject *pairs = PyList_New(0);
    for (size_t i = 0; i < count; i++) {
        PyObject *tensor = pairs == NULL ? NULL : PyObject_CallNoArgs(entries[i].held), *pair = NULL;
        PyObject *own = tensor == NULL || tensor == Py_None ? NULL : PyObject_GetAttr(tensor, s___dict__);
        if (own != NULL && PyDict_GetItemWithError(own, attribute) != NULL)
            pair = Py_BuildValue("(Ol)", tensor, entries[i].row);
        if (PyErr_Occurred() || (pair != NULL && PyList_Append(pairs, pair) != 0)) Py_CLEAR(pairs);
        Py_XDECREF(pair);
        Py_XDECREF(own);
        Py_XDECREF(tensor);
        Py_DECREF(entries[i].held);
    }
    PyMem_Free(entries);
    return pairs;
}

static PyMethodDef journal_methods[] = {
    {"find", journal_find, METH_O, NULL},
    {"row_of", journal_row_of, METH_O, NULL},
    {"remember", journal_remember, METH_VARARGS, NULL},
    {"add_tensor", (PyCFunction)(void (*)(void))journal_add_tensor, METH_VARARGS | METH_KEYWORDS, NULL},
    {"live_with", journal_live_with, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef journal_members[] = {
    MEMBER(Journal, T_OBJECT, ops), MEMBER(Journal, T_OBJECT, tensors), MEMBER(Journal, T_OBJECT, saved),
    MEMBER(Journal, T_OBJECT, slab), MEMBER(Journal, T_OBJECT, on_tensor), MEMBER(Journal, T_OBJECT, plan),
    MEMBER(Journal, T_OBJECT, _shapes), {NULL, 0, 0, 0, NULL},
};

/* ---------------------------------------------------------------------------------------------- the gradients' flow */

typedef struct {
    PyObject_HEAD
    PyObject *_journal, *plan, *stop, *_handles, *_leaf_row, *_leaves;
    int _first_row;
    double mark;
    char running, has_inner_ops;
} Flow;

typedef struct {
    PyObject_HEAD
    PyObject *flow, *name, *tensors, *shares, *targets, *numbers, *arrived;
    int op, module, uses, first_inner_op;
    char custom, leaf, has_run;
} NodeRow;

TRACKED(Flow, flow, _leaves)

static Journal *journal_of(Flow *flow) {
    if (flow->_journal == NULL) PyErr_SetString(PyExc_RuntimeError, "the recording has ended");
    return (Journal *)flow->_journal;
}

static void node_free(PyObject *object) { free_row(object, REFERENCES(NodeRow, arrived)); }

static PyObject *new_node(PyObject *flow, int op, int module, PyObject *name, bool custom, bool leaf) {
    NodeRow *self = PyObject_New(NodeRow, node_type);
    if (self == NULL) return NULL;
    self->flow = Py_NewRef(flow);
    self->name = Py_NewRef(name);
    self->targets = self->numbers = self->arrived = NULL;
    self->op = op;
    self->module = module;
    self->uses = 0;
    self->first_inner_op = NO_ROW;
    self->custom = custom;
    self->leaf = leaf;
    self->has_run = 0;
    self->tensors = PyDict_New();
    self->shares = PyDict_New();
    if (self->tensors == NULL || self->shares == NULL) Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *node_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"flow", "op", "module", "name", "custom", "leaf", NULL};
    PyObject *flow, *name;
    int op, module, custom, leaf;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OiiOpp", names, &flow, &op, &module, &name, &custom, &leaf))
        return NULL;
    return new_node(flow, op, module, name, custom, leaf);
}

/* A new reference to the row of a node, Py_None for a node that this recording has not met, or NULL. `metadata`: the
 * node's, borrowed from the node. */
static PyObject *node_row(Flow *flow, PyObject *node, PyObject **metadata) {
    PyObject *own = PyObject_GetAttr(node, s_metadata);
    PyObject *row = own == NULL ? NULL : PyDict_GetItemWithError(own, (PyObject *)flow);
    if (row != NULL && Py_TYPE(row) != node_type) {
        PyErr_SetString(PyExc_TypeError, "a row of another kind");
        row = NULL;
    }
    if (row == NULL && own != NULL && !PyErr_Occurred()) row = Py_None;
    Py_XINCREF(row);
    if (metadata != NULL && row != NULL)
        *metadata = own; /* the caller's */
    else
        Py_XDECREF(own);
    return row;
}

static PyObject *name_of_type(PyObject *object) {
    return PyObject_GetAttr((PyObject *)Py_TYPE(object), s___name__);
}

static bool is_custom(PyObject *node) { /* of torch.autograd.function.BackwardCFunction: it has Python's methods */
    static PyObject *base;
    if (base == NULL) {
        PyObject *module = PyImport_ImportModule("torch.autograd.function");
        base = module == NULL ? NULL : PyObject_GetAttrString(module, "BackwardCFunction");
        Py_XDECREF(module);
        if (base == NULL) PyErr_Clear();
    }
    return base != NULL && PyType_IsSubtype(Py_TYPE(node), (PyTypeObject *)base);
}

static int append_owned(PyObject *list, PyObject *item) {
    int failed = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return failed;
}

/* The row of a node that has none, kept in its metadata; a new reference. */
static PyObject *add_node(Flow *flow, PyObject *node, PyObject *metadata, long op, int module) {
    PyObject *name = name_of_type(node);
    PyObject *row = name == NULL ? NULL : new_node((PyObject *)flow, (int)op, module, name, is_custom(node), false);
    Py_XDECREF(name);
    if (row != NULL && PyDict_SetItem(metadata, (PyObject *)flow, row) != 0) Py_CLEAR(row);
    return row;
}

/* Note a leaf that collects gradients, at its row. */
static int note_leaf(Flow *flow, PyObject *tensor, PyObject *row) {
    int known = PyDict_Contains(flow->_leaves, row);
    if (known != 0) return known < 0 ? -1 : 0;
    PyObject *reference = PyWeakref_NewRef(tensor, NULL);
    PyObject *leaf = reference == NULL ? NULL : PyObject_CallFunctionObjArgs(leaf_class, reference, row, NULL);
    int failed = leaf == NULL ? -1 : PyDict_SetItem(flow->_leaves, row, leaf);
    Py_XDECREF(reference);
    Py_XDECREF(leaf);
    return failed;
}

/* `GradientFlow._add_leaf_node`; a new reference. */
static PyObject *add_leaf_node(Flow *flow, PyObject *node, PyObject *metadata) {
    Journal *journal = journal_of(flow);
    PyObject *leaf = journal == NULL ? NULL : PyObject_GetAttr(node, s_variable), *row = NULL, *place = NULL;
    long found = leaf == NULL ? FAILED : find(journal, leaf);
    if (found == NO_ROW) found = number(PyObject_CallFunctionObjArgs(flow->_leaf_row, leaf, NULL));
    if (found != FAILED) place = PyLong_FromLong(found);
    if (place != NULL) row = new_node((PyObject *)flow, NO_ROW, 0, s_empty, false, true);
    PyObject *zero = row == NULL ? NULL : PyLong_FromLong(0);
    if (row != NULL && (zero == NULL || PyDict_SetItem(((NodeRow *)row)->tensors, zero, place) != 0 ||
                        note_leaf(flow, leaf, place) != 0 || PyDict_SetItem(metadata, (PyObject *)flow, row) != 0))
        Py_CLEAR(row);
    Py_XDECREF(zero);
    Py_XDECREF(place);
    Py_XDECREF(leaf);
    return row;
}

/* A node's row, made where the node is new; a new one that is no leaf's is appended to `pending` with its node. */
static NodeRow *target_row(Flow *flow, PyObject *target, long op, int module, PyObject *pending) {
    static PyTypeObject *leaf_type; /* AccumulateGrad, which stays */
    PyObject *metadata, *row = node_row(flow, target, &metadata);
    if (row == NULL) return NULL;
    if (row == Py_None) {
        Py_DECREF(row);
        bool is_leaf = leaf_type != NULL && Py_TYPE(target) == leaf_type;
        if (leaf_type == NULL) {
            PyObject *name = name_of_type(target);
            is_leaf = name != NULL && PyUnicode_CompareWithASCIIString(name, "AccumulateGrad") == 0;
            Py_XDECREF(name);
            if (is_leaf) leaf_type = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(target));
        }
        row = is_leaf ? add_leaf_node(flow, target, metadata) : add_node(flow, target, metadata, op, module);
        if (row != NULL && !is_leaf && (PyList_Append(pending, target) != 0 || PyList_Append(pending, row) != 0))
            Py_CLEAR(row);
    }
    Py_DECREF(metadata);
    return (NodeRow *)row;
}

/* PyTorch frees a graph without recursion, except for nodes that have an object in Python, as a hook gives them one. Each
 * of these frees the next inside its own end: a chain of 50,000 ops overflowed a stack of 8 MiB (PyTorch 2.13). So one
 * node in GUARD_PERIOD has a guard in its metadata, which keeps the nodes after it alive until the end of the node is
 * over. The period is prime: what repeats in a net does not pass by every guard. */
enum { GUARD_PERIOD = 997 };

typedef struct {
    PyObject_HEAD
    PyObject *after; /* the node's next_functions */
} Guard;

static PyTypeObject *guard_type;
static PyObject *unguarded; /* a list: what guards have kept */
static bool is_releasing;

/* Called by the interpreter, between two instructions of the main thread, and at the begin of a recording, because the
 * main thread may wait for another. To free one node can end other guards. */
static int release_unguarded(void *Py_UNUSED(nothing)) {
    if (is_releasing) return 0;
    is_releasing = true;
    for (Py_ssize_t left; (left = PyList_Size(unguarded)) > 0;) PyList_SetSlice(unguarded, left - 1, left, NULL);
    is_releasing = false;
    return 0;
}

static PyObject *release(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing)) {
    release_unguarded(NULL);
    Py_RETURN_NONE;
}

static void guard_free(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject *kind, *error, *traceback;
    PyErr_Fetch(&kind, &error, &traceback);
    PyList_Append(unguarded, ((Guard *)object)->after);
    PyErr_Restore(kind, error, traceback);
    Py_DECREF(((Guard *)object)->after);
    PyObject_Free(object);
    Py_DECREF(type);
    /* No Python code may run here: the interpreter would call at once. Where no call can be added, the next guard's
     * call releases these nodes too. */
    if (!is_releasing) Py_AddPendingCall(release_unguarded, NULL);
}

static PyType_Slot guard_slots[] = {{Py_tp_dealloc, guard_free}, {0, NULL}};
static PyType_Spec guard_spec = {
    "chainrule.trace._observer.Guard", sizeof(Guard), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    guard_slots,
};

static int add_guard(PyObject *node, PyObject *after) {
    PyObject *metadata = PyObject_GetAttr(node, s_metadata);
    Guard *guard = metadata == NULL ? NULL : PyObject_New(Guard, guard_type);
    if (guard != NULL) guard->after = Py_NewRef(after);
    int failed = guard == NULL ? -1 : PyDict_SetItem(metadata, (PyObject *)guard_type, (PyObject *)guard);
    Py_XDECREF((PyObject *)guard);
    Py_XDECREF(metadata);
    return failed;
}

/* Hook one node and find where its gradients go. */
static int follow(Flow *flow, PyObject *node, NodeRow *row, long op, int module, int watched_from, PyObject *pending) {
    if (append_owned(flow->_handles, PyObject_CallMethodObjArgs(node, s_register_hook, row, NULL)) != 0) return -1;
    if (row->custom || flow->has_inner_ops) {
        PyObject *hook = PyObject_CallMethodObjArgs((PyObject *)flow, s__before_node, row, NULL);
        PyObject *handle = hook == NULL ? NULL : PyObject_CallMethodObjArgs(node, s_register_prehook, hook, NULL);
        Py_XDECREF(hook);
        if (append_owned(flow->_handles, handle) != 0) return -1;
    }
    PyObject *next = PyObject_GetAttr(node, s_next_functions);
    Py_ssize_t count = next == NULL ? -1 : PyTuple_Size(next);
    if (count >= 0 && PyList_Size(flow->_handles) % GUARD_PERIOD == 0 && add_guard(node, next) != 0) count = -1;
    PyObject *targets = count < 0 ? NULL : PyTuple_New(count), *numbers = count < 0 ? NULL : PyTuple_New(count);
    bool failed = targets == NULL || numbers == NULL;
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        PyObject *edge = PyTuple_GetItem(next, i);
        PyObject *target = edge == NULL ? NULL : PyTuple_GetItem(edge, 0);
        PyObject *output = edge == NULL ? NULL : PyTuple_GetItem(edge, 1);
        failed = target == NULL || output == NULL || PyTuple_SetItem(numbers, i, Py_NewRef(output)) != 0;
        if (failed) break;
        NodeRow *to = target == Py_None ? NULL : target_row(flow, target, op, module, pending);
        failed = to == NULL && target != Py_None;
        if (to != NULL && ++to->uses == watched_from && to->leaf) {
            /* Several gradients may meet here; after this node the engine has added them. */
            PyObject *name = name_of_type(target), *handle = NULL;
            PyObject *hook =
                name == NULL ? NULL : PyObject_CallMethodObjArgs((PyObject *)flow, s__after_leaf, to, name, NULL);
            if (hook != NULL) handle = PyObject_CallMethodObjArgs(target, s_register_hook, hook, NULL);
            Py_XDECREF(name);
            Py_XDECREF(hook);
            failed = append_owned(flow->_handles, handle) != 0;
        }
        PyObject *item = to == NULL ? Py_None : (PyObject *)to;
        if (to == NULL) Py_INCREF(item);
        if (PyTuple_SetItem(targets, i, item) != 0) failed = true;
    }
    Py_XDECREF(next);
    if (failed) {
        Py_XDECREF(targets);
        Py_XDECREF(numbers);
        return -1;
    }
    PyObject *old_targets = row->targets, *old_numbers = row->numbers;
    row->targets = targets;
    row->numbers = numbers;
    Py_XDECREF(old_targets);
    Py_XDECREF(old_numbers);
    return 0;
}

/* Assign nodes to an op, from an output's new grad_fn down to nodes of other ops, and append them to `adopted`. Returns
 * a new reference to the first one's row. */
static PyObject *adopt(Flow *flow, PyObject *top, PyObject *metadata, long op, int module, PyObject *adopted) {
    int watched_from = flow->plan == Py_None ? 2 : 1;
    PyObject *pending = PyList_New(0), *row = pending == NULL ? NULL : add_node(flow, top, metadata, op, module);
    bool failed = row == NULL || PyList_Append(pending, top) != 0 || PyList_Append(pending, row) != 0;
    Py_ssize_t left;
    while (!failed && (left = PyList_Size(pending)) > 0) {
        PyObject *node = Py_NewRef(PyList_GetItem(pending, left - 2));
        PyObject *of_node = Py_NewRef(PyList_GetItem(pending, left - 1));
        failed = PyList_SetSlice(pending, left - 2, left, NULL) != 0 || PyList_Append(adopted, node) != 0 ||
                 follow(flow, node, (NodeRow *)of_node, op, module, watched_from, pending) != 0;
        Py_DECREF(node);
        Py_DECREF(of_node);
    }
    Py_XDECREF(pending);
    if (failed) Py_CLEAR(row);
    return row;
}

static int collect(PyObject *value, PyObject *found);

static int collect_all(PyObject *values, PyObject *found) {
    PyObject *iterator = PyObject_GetIter(values), *value;
    while (iterator != NULL && (value = PyIter_Next(iterator)) != NULL) {
        int failed = collect(value, found);
        Py_DECREF(value);
        if (failed) break;
    }
    Py_XDECREF(iterator);
    return PyErr_Occurred() ? -1 : 0;
}

/* Append the tensors in a value, as nested.py finds them. */
static int collect(PyObject *value, PyObject *found) {
    PyTypeObject *type = Py_TYPE(value);
    if (is_plain(value)) return PyList_Append(found, value);
    if (value == Py_None || type == &PyFloat_Type || type == &PyLong_Type || type == &PyBool_Type ||
        type == &PyUnicode_Type)
        return 0;
    int is_tensor = PyObject_IsInstance(value, (PyObject *)tensor_type);
    if (is_tensor != 0) return is_tensor < 0 ? -1 : PyList_Append(found, value);
    int failed = 0;
    if (PyList_Check(value) || PyTuple_Check(value)) {
        if (Py_EnterRecursiveCall(" while looking for tensors")) return -1;
        failed = collect_all(value, found);
        Py_LeaveRecursiveCall();
    } else if (PyDict_Check(value)) {
        if (Py_EnterRecursiveCall(" while looking for tensors")) return -1;
        PyObject *values = PyDict_Values(value);
        failed = values == NULL ? -1 : collect_all(values, found);
        Py_XDECREF(values);
        Py_LeaveRecursiveCall();
    }
    return failed;
}

/* The tensors that a node keeps: a new list. */
static PyObject *kept_by(PyObject *node) {
    PyObject *names = is_custom(node) ? NULL : PyDict_GetItemWithError(saved_names, (PyObject *)Py_TYPE(node));
    if (names == NULL) return PyErr_Occurred() ? NULL : PyObject_CallFunctionObjArgs(saved_tensors, node, NULL);
    PyObject *found = PyList_New(0);
    Py_ssize_t count = PyTuple_Size(names);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        PyObject *value = PyObject_GetAttr(node, PyTuple_GetItem(names, i));
        if (value == NULL || collect(value, found) != 0) Py_CLEAR(found);
        Py_XDECREF(value);
    }
    return found;
}

/* The row of the first of some tensors on the same memory as this one, else NO_ROW. */
static long row_of_same(PyObject *tensor, PyObject *tensors, PyObject *rows) {
    Py_ssize_t count = PyList_Size(tensors);
    for (Py_ssize_t i = 0; i < count; i++) {
        int same = same_memory(tensor, PyList_GetItem(tensors, i));
        if (same != 0) return same == FAILED ? FAILED : number_at(rows, i);
    }
    return NO_ROW;
}

static int record_saved(Journal *journal, PyObject *node, long op, PyObject *results, PyObject *result_rows,
                        PyObject *inputs, PyObject *input_rows) {
    PyObject *kept = kept_by(node);
    Py_ssize_t count = kept == NULL ? -1 : PyList_Size(kept);
    int failed = count < 0;
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        PyObject *tensor = PyList_GetItem(kept, i);
        long row = find(journal, tensor);
        if (row == NO_ROW) {
            /* An output is saved as another tensor object on the same memory, and so is a view of an input. */
            void *start;
            int has_memory = address(tensor, &start);
            long elements = has_memory == 1 ? number(numel(tensor, NULL)) : has_memory;
            if (elements > 0) {
                row = row_of_same(tensor, results, result_rows);
                if (row == NO_ROW) row = row_of_same(tensor, inputs, input_rows);
            } else if (elements == FAILED)
                row = FAILED;
        }
        if (row == NO_ROW) {
            int nested = truth(ask(&is_nested, tensor));
            long dimensions = nested == 0 ? number(dim(tensor, NULL)) : nested;
            if (dimensions == 0) continue; /* a Python number, as autograd keeps it */
            OpRow *maker = dimensions == FAILED ? NULL : (OpRow *)row_at(journal->ops, op, op_type);
            row = FAILED;
            if (maker != NULL) row = add_tensor(journal, tensor, s_saved, maker->module, (int)op, s_empty, NO_ROW);
            if (row != FAILED && (append_number(maker->outputs, row) != 0 || remember(journal, tensor, row) != 0))
                row = FAILED;
        }
        PyObject *pair = row == FAILED ? NULL : Py_BuildValue("(ll)", row, op);
        failed = pair == NULL || PyDict_SetItem(journal->saved, pair, Py_None) != 0;
        Py_XDECREF(pair);
    }
    Py_XDECREF(kept);
    return failed ? -1 : 0;
}

/* Note that a node's output is this tensor; the node is adopted where it is new. */
static int own_result(Flow *flow, PyObject *node, PyObject *tensor, PyObject *tensor_row, long op, int module,
                      PyObject *adopted) {
    PyObject *metadata, *row = node_row(flow, node, &metadata);
    if (row == NULL) return -1;
    if (row == Py_None) {
        Py_DECREF(row);
        row = adopt(flow, node, metadata, op, module, adopted);
    }
    Py_DECREF(metadata);
    PyObject *place = row == NULL ? NULL : ask(&output_nr, tensor);
    int failed = place == NULL ? -1 : PyDict_SetItem(((NodeRow *)row)->tensors, place, tensor_row);
    Py_XDECREF(place);
    Py_XDECREF(row);
    return failed;
}

/* All but `op` and `module` are lists. */
static int own(Flow *flow, long op, int module, PyObject *results, PyObject *result_rows, PyObject *inputs,
               PyObject *input_rows) {
    Journal *journal = journal_of(flow);
    PyObject *nodes = journal == NULL ? NULL : PyList_New(0);
    if (nodes == NULL) return -1;
    Py_ssize_t count = PyList_Size(results);
    int failed = 0;
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        PyObject *tensor = PyList_GetItem(results, i), *row = PyList_GetItem(result_rows, i);
        PyObject *node = row == NULL ? NULL : grad_fn_of(tensor);
        failed = node == NULL ||
                 (node != Py_None && own_result(flow, node, tensor, row, op, module, nodes) != 0);
        Py_XDECREF(node);
    }
    count = failed ? 0 : PyList_Size(nodes);
    if (count > 0) {
        /* Saved tensors with hooks are not read, because that can run the forward again. */
        PyObject *hooks = PyObject_CallFunctionObjArgs(saved_hooks, Py_False, NULL);
        failed = hooks == NULL;
        Py_XDECREF(hooks);
        if (hooks != Py_None) count = 0;
    }
    for (Py_ssize_t i = 0; i < count && !failed; i++)
        failed = record_saved(journal, PyList_GetItem(nodes, i), op, results, result_rows, inputs, input_rows) != 0;
    Py_DECREF(nodes);
    return failed ? -1 : 0;
}

/* Whether the way of this file is the way to go: no plan, and no dispatch mode of the program that would see it. */
static int is_common(Flow *flow) {
    if (flow->plan != Py_None) return 0;
    long modes = number(PyObject_CallNoArgs(dispatch_modes));
    return modes == FAILED ? FAILED : modes == 0;
}

static PyObject *flow_own(PyObject *self, PyObject *arguments) {
    PyObject *results, *result_rows, *inputs, *input_rows;
    int op, module;
    if (!PyArg_ParseTuple(arguments, "iiOOOO", &op, &module, &results, &result_rows, &inputs, &input_rows)) return NULL;
    int common = PyList_Check(results) && PyList_Check(result_rows) && PyList_Check(inputs) && PyList_Check(input_rows)
                     ? is_common((Flow *)self) : 0;
    if (common == FAILED) return NULL;
    if (common == 0) {
        PyObject *method = PyObject_GetAttr(self, s_python_own);
        PyObject *answer = method == NULL ? NULL : PyObject_CallObject(method, arguments);
        Py_XDECREF(method);
        return answer;
    }
    if (own((Flow *)self, op, module, results, result_rows, inputs, input_rows) != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *flow_adopt(PyObject *self, PyObject *arguments) {
    PyObject *node, *adopted;
    int op, module;
    if (!PyArg_ParseTuple(arguments, "OiiO!", &node, &op, &module, &PyList_Type, &adopted)) return NULL;
    PyObject *metadata = PyObject_GetAttr(node, s_metadata);
    PyObject *row = metadata == NULL ? NULL : adopt((Flow *)self, node, metadata, op, module, adopted);
    Py_XDECREF(metadata);
    return row;
}

/* The row of the gradient of a node's output that has arrived. */
static long arrive(Flow *flow, NodeRow *row, Py_ssize_t place, PyObject *gradient) {
    Journal *journal = journal_of(flow);
    PyObject *output = journal == NULL ? NULL : PyLong_FromSsize_t(place);
    if (output == NULL) return FAILED;
    long found = NO_ROW;
    PyObject *shares = PyDict_GetItemWithError(row->shares, output);
    if (shares != NULL && PyList_Size(shares) == 1) {
        PyObject *share = PyList_GetItem(shares, 0);
        long share_row = PyLong_AsLong(PyTuple_GetItem(share, 0));
        PyObject *made = PyObject_CallNoArgs(PyTuple_GetItem(share, 1));
        if (made == gradient && share_row >= flow->_first_row) found = share_row;
        Py_XDECREF(made);
    }
    if (found != NO_ROW) {
        TensorRow *arrived = tensor_at(journal, found);
        PyObject *of = arrived == NULL ? NULL : PyDict_GetItemWithError(row->tensors, output);
        if (of != NULL) arrived->gradient_of = (int)PyLong_AsLong(of);
        else if (arrived != NULL) arrived->gradient_of = NO_ROW;
        if (PyErr_Occurred() || PyDict_DelItem(row->shares, output) != 0) found = FAILED;
    } else
        found = PyErr_Occurred() ? FAILED
                                 : number(PyObject_CallMethodObjArgs((PyObject *)flow, s__arrive, row, output, gradient,
                                                                     NULL));
    Py_DECREF(output);
    return found;
}

/* Note that a gradient is on its way to output `output` of a node. */
static int send(NodeRow *target, PyObject *output, long row, PyObject *gradient) {
    PyObject *reference = PyWeakref_NewRef(gradient, NULL);
    PyObject *share = reference == NULL ? NULL : Py_BuildValue("(lN)", row, reference);
    PyObject *shares = share == NULL ? NULL : PyDict_GetItemWithError(target->shares, output);
    int failed = share == NULL || (shares == NULL && PyErr_Occurred());
    if (!failed && shares == NULL) {
        shares = PyList_New(0);
        failed = shares == NULL || PyDict_SetItem(target->shares, output, shares) != 0;
        Py_XDECREF(shares); /* the dict's */
    }
    if (!failed) failed = PyList_Append(shares, share) != 0;
    Py_XDECREF(share);
    return failed ? -1 : 0;
}

struct ran { /* what a node's hook has found so far */
    PyObject *inputs, *outputs, *first;
    long op, first_row;
};

/* Record one gradient that a node has made. */
static int record_gradient(Flow *flow, NodeRow *row, NodeRow *target, PyObject *output, PyObject *gradient,
                           struct ran *ran, double microseconds) {
    Journal *journal = (Journal *)flow->_journal;
    if (ran->outputs == NULL) {
        PyObject *given = PyDict_New();
        ran->outputs = given == NULL ? NULL : PyList_New(0);
        ran->op = ran->outputs == NULL ? FAILED
                                       : add_op(journal, new_op(row->name, s_backward, row->module, given, ran->inputs,
                                                                ran->outputs, row->op, Py_None, microseconds, false));
        Py_XDECREF(given);
        if (ran->op == FAILED) return -1;
    }
    long same = gradient == ran->first ? ran->first_row
                : ran->first == NULL   ? NO_ROW
                                       : same_values(row->name, gradient, ran->first, ran->first_row);
    if (same == FAILED) return -1;
    long made = add_tensor(journal, gradient, s_gradient, row->module, (int)ran->op, s_empty, same);
    if (made == FAILED || append_number(ran->outputs, made) != 0 || remember(journal, gradient, made) != 0) return -1;
    TensorRow *recorded = tensor_at(journal, made);
    PyObject *of = recorded == NULL ? NULL : PyDict_GetItemWithError(target->tensors, output);
    if (PyErr_Occurred()) return -1;
    recorded->share_of = of == NULL ? NO_ROW : (int)PyLong_AsLong(of);
    if (target->leaf && target->uses == 1) recorded->gradient_of = recorded->share_of;
    else if (send(target, output, made, gradient) != 0) return -1;
    PyObject *node = ask(&grad_fn, gradient);
    int failed = node == NULL;
    if (!failed && node != Py_None) {
        /* create_graph: nodes that autograd adds here belong to this node's op, not to a later reader. */
        PyObject *adopted = PyList_New(0), *number_made = PyLong_FromLong(made);
        failed = adopted == NULL || number_made == NULL ||
                 own_result(flow, node, gradient, number_made, row->op, row->module, adopted) != 0;
        Py_XDECREF(adopted);
        Py_XDECREF(number_made);
    }
    Py_XDECREF(node);
    return failed ? -1 : 0;
}

/* `GradientFlow.node_ran` of a node without ops of its own. */
static int node_ran(Flow *flow, NodeRow *row, PyObject *grad_inputs, PyObject *grad_outputs) {
    double microseconds = (now() - flow->mark) * 1e6;
    struct ran ran = {PyList_New(0), NULL, NULL, NO_ROW, NO_ROW};
    int failed = ran.inputs == NULL;
    Py_ssize_t count = PyTuple_Size(grad_outputs);
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        PyObject *gradient = PyTuple_GetItem(grad_outputs, i);
        if (gradient == Py_None) continue;
        long arrived = arrive(flow, row, i, gradient);
        failed = arrived == FAILED || append_number(ran.inputs, arrived) != 0;
        if (ran.first == NULL) ran.first = gradient, ran.first_row = arrived;
    }
    Py_ssize_t targets = row->targets == NULL ? 0 : PyTuple_Size(row->targets);
    count = PyTuple_Size(grad_inputs);
    if (targets < count) count = targets;
    for (Py_ssize_t i = 0; i < count && !failed; i++) {
        PyObject *gradient = PyTuple_GetItem(grad_inputs, i), *target = PyTuple_GetItem(row->targets, i);
        if (gradient == Py_None || target == Py_None) continue;
        failed = record_gradient(flow, row, (NodeRow *)target, PyTuple_GetItem(row->numbers, i), gradient, &ran,
                                 microseconds) != 0;
    }
    Py_XDECREF(ran.inputs);
    Py_XDECREF(ran.outputs);
    row->has_run = 1;
    flow->mark = now();
    return failed || PyErr_Occurred() ? -1 : 0;
}

/* None, or the error of a stop that was asked for: 1 if there is one, 0, or FAILED. */
static int has_error(PyObject *stop) {
    PyObject *error = stop == NULL ? NULL : PyObject_GetAttr(stop, s_error);
    Py_XDECREF(error);
    return error == NULL ? FAILED : error != Py_None;
}

static PyObject *node_call(PyObject *object, PyObject *arguments, PyObject *keywords) {
    NodeRow *self = (NodeRow *)object;
    Flow *flow = (Flow *)self->flow;
    (void)keywords;
    if (!flow->running) Py_RETURN_NONE;
    PyObject *grad_inputs, *grad_outputs;
    if (!PyArg_UnpackTuple(arguments, "NodeRow", 2, 2, &grad_inputs, &grad_outputs)) return NULL;
    int stopped = has_error(flow->stop);
    if (stopped == FAILED) return NULL;
    bool has_arrived = self->arrived != NULL && self->arrived != Py_None;
    if (stopped || flow->plan != Py_None || flow->has_inner_ops || self->custom || has_arrived ||
        self->first_inner_op != NO_ROW || !PyTuple_Check(grad_inputs) || !PyTuple_Check(grad_outputs))
        return PyObject_CallMethodObjArgs((PyObject *)flow, s_node_called, self, grad_inputs, grad_outputs, NULL);
    PyObject *guard = look_away();
    if (guard == NULL) return NULL;
    int failed = node_ran(flow, self, grad_inputs, grad_outputs);
    see(guard);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyMemberDef node_members[] = {
    MEMBER(NodeRow, T_OBJECT, flow), MEMBER(NodeRow, T_OBJECT, name), MEMBER(NodeRow, T_OBJECT, tensors),
    MEMBER(NodeRow, T_OBJECT, shares), MEMBER(NodeRow, T_OBJECT, targets), MEMBER(NodeRow, T_OBJECT, numbers),
    MEMBER(NodeRow, T_OBJECT, arrived), MEMBER(NodeRow, T_INT, op), MEMBER(NodeRow, T_INT, module),
    MEMBER(NodeRow, T_INT, uses), MEMBER(NodeRow, T_INT, first_inner_op), MEMBER(NodeRow, T_BOOL, custom),
    MEMBER(NodeRow, T_BOOL, leaf), MEMBER(NodeRow, T_BOOL, has_run), {NULL, 0, 0, 0, NULL},
};
static PyType_Slot node_slots[] = {
    {Py_tp_new, node_new}, {Py_tp_dealloc, node_free}, {Py_tp_call, node_call}, {Py_tp_members, node_members},
    {0, NULL},
};
static PyType_Spec node_spec = {
    "chainrule.trace._observer.NodeRow", sizeof(NodeRow), 0, Py_TPFLAGS_DEFAULT, node_slots,
};

static PyMethodDef flow_methods[] = {
    {"own", flow_own, METH_VARARGS, NULL}, {"_adopt", flow_adopt, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL},
};
static PyMemberDef flow_members[] = {
    MEMBER(Flow, T_OBJECT_EX, _journal), MEMBER(Flow, T_OBJECT_EX, plan), MEMBER(Flow, T_OBJECT, stop),
    MEMBER(Flow, T_OBJECT, _handles), MEMBER(Flow, T_OBJECT_EX, _leaf_row), MEMBER(Flow, T_OBJECT, _leaves),
    MEMBER(Flow, T_INT, _first_row),
    MEMBER(Flow, T_DOUBLE, mark), MEMBER(Flow, T_BOOL, running), MEMBER(Flow, T_BOOL, has_inner_ops),
    {NULL, 0, 0, 0, NULL},
};

/* --------------------------------------------------------------------------------------------------------- observer */

typedef struct {
    PyObject_HEAD
    PyObject *journal, *owners, *aten, *activations, *_stop, *_gradients, *_attributes, *_stack, *_module_rows;
    PyObject *_synchronizing, *witness;
    unsigned long _thread;
    int _backward_depth, root;
    char _running;
} Observer;

TRACKED(Observer, observer, witness)

/* A new reference, NULL for an attribute of `owners` that is no dict. */
static PyObject *dict_of_owners(Observer *self, PyObject *name) {
    PyObject *found = PyObject_GetAttr(self->owners, name);
    if (found == NULL || PyDict_Check(found)) return found;
    Py_DECREF(found);
    PyErr_SetString(PyExc_TypeError, "a dict was expected");
    return NULL;
}

/* 1 if the owners are not sharded. */
static int has_no_shards(Observer *self) {
    PyObject *sharded = PyObject_GetAttr(self->owners, s_sharded);
    int some = sharded == NULL ? -1 : PyObject_IsTrue(sharded);
    Py_XDECREF(sharded);
    return some < 0 ? FAILED : !some;
}

/* `_add_leaf` of a tensor of the model or its input that is no output of a node; NO_ROW for any other one. */
static long add_known_leaf(Observer *self, PyObject *tensor) {
    if (!is_plain(tensor)) return NO_ROW;
    int plain = has_no_shards(self);
    PyObject *node = plain == 1 ? grad_fn_of(tensor) : NULL;
    Py_XDECREF(node);
    if (node != Py_None) return PyErr_Occurred() ? FAILED : NO_ROW;
    PyObject *tensors = dict_of_owners(self, s__tensors), *key = tensors == NULL ? NULL : PyLong_FromVoidPtr(tensor);
    PyObject *known = key == NULL ? NULL : PyDict_GetItemWithError(tensors, key); /* (reference, name, role) */
    Py_XINCREF(known);
    Py_XDECREF(key);
    Py_XDECREF(tensors);
    long row = PyErr_Occurred() ? FAILED : NO_ROW;
    PyObject *lives = known == NULL ? NULL : PyObject_CallNoArgs(PyTuple_GetItem(known, 0));
    Py_XDECREF(lives);
    if (lives == tensor) {
        row = add_tensor((Journal *)self->journal, tensor, PyTuple_GetItem(known, 2), self->root, NO_ROW,
                         PyTuple_GetItem(known, 1), NO_ROW);
        if (row != FAILED && remember((Journal *)self->journal, tensor, row) != 0) row = FAILED;
    }
    Py_XDECREF(known);
    return PyErr_Occurred() ? FAILED : row;
}

static long add_leaf(Observer *self, PyObject *tensor) {
    long row = add_known_leaf(self, tensor);
    return row != NO_ROW ? row : number(PyObject_CallMethodObjArgs((PyObject *)self, s_python__add_leaf, tensor, NULL));
}

static PyObject *observer_add_leaf(PyObject *self, PyObject *tensor) {
    return row_or_error(add_leaf((Observer *)self, tensor));
}

/* The row of a module of the model that runs for the first time; NO_ROW for any other one. */
static long row_of_module(Observer *self, PyObject *module, PyObject *key) {
    PyObject *paths = dict_of_owners(self, s_path);
    PyObject *path = paths == NULL ? NULL : PyDict_GetItemWithError(paths, key);
    PyObject *type = path == NULL ? NULL : name_of_type(module);
    long row = type != NULL ? number(PyObject_CallMethodObjArgs(self->journal, s_module, path, type, NULL))
                            : PyErr_Occurred() ? FAILED : NO_ROW;
    Py_XDECREF(type);
    Py_XDECREF(paths);
    return row;
}

static struct table codes; /* code → 1: the user's, 0: not, NO_ROW: none of its callers is */

/* `sources.user_frame` of the frame that runs; a new reference, perhaps to None. */
static PyObject *user_frame(void) {
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame != NULL && frame != Py_None) {
        PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
        struct entry *entry = entry_of_live(&codes, code);
        long known = entry == NULL ? FAILED : entry->row;
        if (entry == NULL && !PyErr_Occurred()) {
            PyObject *file = PyObject_GetAttr(code, s_co_filename);
            PyObject *answer = file == NULL ? NULL : PyObject_CallFunctionObjArgs(is_user_file, file, NULL);
            PyObject *reference = answer == NULL ? NULL : PyWeakref_NewRef(code, NULL);
            if (reference != NULL) known = answer == Py_None ? NO_ROW : answer == Py_True;
            if (reference != NULL && put(&codes, code, reference, known, 0) != 0) known = FAILED;
            Py_XDECREF(answer);
            Py_XDECREF(file);
        }
        Py_DECREF(code);
        if (known == 1) return frame;
        PyObject *back = known == 0 ? PyObject_GetAttr(frame, s_f_back) : NULL;
        Py_DECREF(frame);
        if (back == NULL && known != NO_ROW) return NULL;
        frame = back;
    }
    return frame == NULL ? Py_NewRef(Py_None) : frame;
}

/* (code, line) of a frame, or None; a new reference. */
static PyObject *source_of(PyObject *frame) {
    if (frame == Py_None) return Py_NewRef(frame);
    PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
    return Py_BuildValue("(Ni)", code, PyFrame_GetLineNumber((PyFrameObject *)frame));
}

/* Whether `ops.attributes` takes a value as it is. */
static bool is_simple(PyObject *value) {
    PyTypeObject *type = Py_TYPE(value);
    return value == Py_None || type == &PyBool_Type || type == &PyLong_Type || type == &PyUnicode_Type;
}

/* `ops.attributes`; a new dict. */
static PyObject *attributes_of(Kind *kind, PyObject *arguments, PyObject *keywords) {
    PyObject *found = PyDict_New(), *key, *value;
    Py_ssize_t count = PyTuple_Size(arguments), names = PyTuple_Size(kind->parameters), place = 0;
    bool simple = true;
    for (Py_ssize_t i = 0; found != NULL && simple && i < count; i++) {
        value = PyTuple_GetItem(arguments, i);
        if (is_plain(value)) continue;
        simple = is_simple(value);
        if (!simple) break;
        PyObject *name = i < names ? Py_NewRef(PyTuple_GetItem(kind->parameters, i)) : PyUnicode_FromFormat("%zd", i);
        if (name == NULL || PyDict_SetItem(found, name, value) != 0) Py_CLEAR(found);
        Py_XDECREF(name);
    }
    while (found != NULL && simple && keywords != NULL && PyDict_Next(keywords, &place, &key, &value)) {
        if (is_plain(value)) continue;
        simple = is_simple(value);
        if (simple && PyDict_SetItem(found, key, value) != 0) Py_CLEAR(found);
    }
    if (found == NULL || simple) return found;
    Py_DECREF(found);
    PyObject *none = keywords == NULL ? PyDict_New() : Py_NewRef(keywords);
    found = none == NULL ? NULL : PyObject_CallFunctionObjArgs(attributes, kind, arguments, none, NULL);
    Py_XDECREF(none);
    return found;
}

/* The module that runs now, from the stack; NO_ROW if Python must look for it. */
static long running_module(Observer *self) {
    Py_ssize_t depth = PyList_Size(self->_stack);
    if (depth <= 0) return depth < 0 ? FAILED : NO_ROW;
    PyObject *top = PyList_GetItem(self->_stack, depth - 1), *entered = PyObject_CallNoArgs(scopes);
    Py_ssize_t count = entered == NULL ? -1 : PyTuple_Size(entered);
    Py_XDECREF(entered);
    if (count < 0) return FAILED;
    long then = PyLong_AsLong(PyTuple_GetItem(top, 1));
    return count > then ? NO_ROW : PyLong_AsLong(PyTuple_GetItem(top, 0));
}

static long module_of(Observer *self, PyObject *frame) {
    long module = running_module(self);
    if (module != NO_ROW) return module;
    PyObject *entered = PyObject_CallNoArgs(scopes);
    if (entered == NULL) return FAILED;
    Py_ssize_t count = PyTuple_Size(entered);
    if (count > 0) { /* a scope inside of the module, or no module */
        PyObject *innermost = PyTuple_GetItem(entered, count - 1);
        module = number(PyObject_CallMethodObjArgs(self->journal, s_module, PyTuple_GetItem(innermost, 0),
                                                   PyTuple_GetItem(innermost, 1), NULL));
        Py_DECREF(entered);
        return module;
    }
    Py_DECREF(entered);
    return number(PyObject_CallMethodObjArgs((PyObject *)self, s__current_module, frame, NULL));
}

struct call {
    Kind *kind;
    PyObject *arguments, *keywords; /* NULL for none */
    PyObject *inputs, *rows, *versions; /* lists */
    PyObject *output;
    double microseconds;
};

/* `Journal.add_unit_statistics`. */
static int add_unit_statistics(Journal *journal, PyObject *name, PyObject *tensor, PyObject *place) {
    TensorRow *row = tensor_at(journal, PyLong_AsLong(place));
    int rectifies = row == NULL ? FAILED : PySet_Contains(rectifiers, name);
    if (rectifies == 1) rectifies = number(PyObject_CallNoArgs(dispatch_modes)) == 0; /* else Python switches them off */
    if (rectifies == 1) rectifies = row->statistics != NO_ROW && truth(is_floating_point(tensor, NULL)) == 1 &&
                                    number(numel(tensor, NULL)) > 0 && number(dim(tensor, NULL)) >= 2;
    if (rectifies < 0 || PyErr_Occurred()) return -1;
    if (rectifies == 1) {
        PyObject *at = PyLong_FromLong(row->statistics);
        PyObject *done = NULL;
        if (at != NULL) done = PyObject_CallMethodObjArgs(journal->slab, s_write_dead_fraction, at, tensor, NULL);
        Py_XDECREF(at);
        Py_XDECREF(done);
        if (done != NULL) return 0;
        PyErr_Clear(); /* Python knows which errors only concern the statistics */
    }
    PyObject *done = PyObject_CallMethodObjArgs((PyObject *)journal, s_add_unit_statistics, name, tensor, place, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Add an op with its results, each of them a new value; `outputs` becomes the list of their rows. The op's row, or
 * FAILED. */
static long add_with_results(Journal *journal, struct call *call, PyObject *phase, long module, PyObject *source,
                             PyObject *results, PyObject **outputs) {
    Kind *kind = call->kind;
    PyObject *given = attributes_of(kind, call->arguments, call->keywords);
    *outputs = given == NULL ? NULL : PyList_New(0);
    long op = *outputs == NULL ? FAILED
                               : add_op(journal, new_op(kind->name, phase, (int)module, given, call->rows, *outputs,
                                                        NO_ROW, source, call->microseconds, false));
    Py_XDECREF(given);
    bool has_units = kind->has_units && phase == s_forward;
    Py_ssize_t count = PyList_Size(results), inputs = PyList_Size(call->inputs);
    for (Py_ssize_t i = 0; i < count && op != FAILED; i++) {
        PyObject *tensor = PyList_GetItem(results, i);
        long same = inputs > 0 ? same_values(kind->name, tensor, PyList_GetItem(call->inputs, 0),
                                             number_at(call->rows, 0))
                               : NO_ROW;
        long row = same == FAILED ? FAILED
                                  : add_tensor(journal, tensor, kind->role, (int)module, (int)op, s_empty, same);
        PyObject *place = row == FAILED ? NULL : PyLong_FromLong(row);
        if (place != NULL && has_units && add_unit_statistics(journal, kind->name, tensor, place) != 0)
            Py_CLEAR(place);
        if (place == NULL || PyList_Append(*outputs, place) != 0 || remember(journal, tensor, row) != 0) op = FAILED;
        Py_XDECREF(place);
    }
    return op;
}

/* Record a forward op that has made the tensors `results`, all of them new and in autograd's graph. */
static int record_op(Observer *self, struct call *call, PyObject *results) {
    PyObject *frame = user_frame(), *outputs = NULL;
    long module = frame == NULL ? FAILED : module_of(self, frame);
    PyObject *source = module == FAILED ? NULL : source_of(frame);
    Py_XDECREF(frame);
    long op = source == NULL ? FAILED : add_with_results((Journal *)self->journal, call, s_forward, module, source,
                                                         results, &outputs);
    int failed = op == FAILED || own((Flow *)self->_gradients, op, (int)module, results, outputs, call->inputs,
                                     call->rows) != 0;
    Py_XDECREF(source);
    Py_XDECREF(outputs);
    return failed ? -1 : 0;
}

/* Append (row, weak reference) of each result to `made`, which `AtenLevel.end` reads. */
static int note_made(PyObject *made, PyObject *results, PyObject *outputs) {
    Py_ssize_t count = PyList_Size(results);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *reference = PyWeakref_NewRef(PyList_GetItem(results, i), NULL);
        PyObject *pair = reference == NULL ? NULL : Py_BuildValue("(ON)", PyList_GetItem(outputs, i), reference);
        if (append_owned(made, pair) != 0) return -1;
    }
    return 0;
}

/* `AtenLevel._record` of an op that writes into none of its arguments. */
static PyObject *observer_run_functional(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Observer *self = (Observer *)object;
    if (count != 8 || Py_TYPE(given[0]) != kind_type || !PyTuple_Check(given[2]) || !PyDict_Check(given[3])) {
        PyErr_SetString(PyExc_TypeError, "run_functional(kind, func, args, kwargs, phase, module, source, made)");
        return NULL;
    }
    struct call call = {(Kind *)given[0], given[2], given[3], PyList_New(0), PyList_New(0), NULL, NULL, 0};
    PyObject *found = PyList_New(0), *results = PyList_New(0), *outputs = NULL, *values = PyDict_Values(given[3]);
    long module = PyLong_AsLong(given[5]);
    bool done = call.inputs && call.rows && found && results && values && !PyErr_Occurred() &&
                collect_all(given[2], call.inputs) == 0 && collect_all(values, call.inputs) == 0;
    Py_ssize_t inputs = done ? PyList_Size(call.inputs) : 0;
    for (Py_ssize_t i = 0; done && i < inputs; i++) {
        PyObject *tensor = PyList_GetItem(call.inputs, i);
        struct entry *entry = entry_of_live(&((Journal *)self->journal)->live, tensor);
        long row = entry != NULL ? entry->row : PyErr_Occurred() ? FAILED : add_leaf(self, tensor);
        done = row != FAILED && append_number(call.rows, row) == 0;
    }
    double began = done ? now() : 0;
    if (done) call.output = PyObject_Call(given[1], given[2], given[3]);
    if (call.output != NULL) call.microseconds = (now() - began) * 1e6;
    done = call.output != NULL && collect(call.output, found) == 0;
    count = done ? PyList_Size(found) : 0;
    for (Py_ssize_t i = 0; done && i < count; i++) {
        PyObject *tensor = PyList_GetItem(found, i);
        bool is_new = true; /* else an input that is handed through */
        for (Py_ssize_t k = 0; k < inputs && is_new; k++) is_new = PyList_GetItem(call.inputs, k) != tensor;
        if (is_new && PyList_Append(results, tensor) != 0) done = false;
    }
    if (done)
        done = add_with_results((Journal *)self->journal, &call, given[4], module, given[6], results, &outputs) !=
                   FAILED && note_made(given[7], results, outputs) == 0;
    Py_XDECREF(call.inputs);
    Py_XDECREF(call.rows);
    Py_XDECREF(found);
    Py_XDECREF(results);
    Py_XDECREF(outputs);
    Py_XDECREF(values);
    if (!done) Py_CLEAR(call.output);
    return call.output;
}

/* What a call gave and changed: 1 if `record_op` can record it and its new tensors are in `results`, 0 if not. */
static int is_plain_result(Observer *self, struct call *call, PyObject *results) {
    PyObject *returned = PyList_New(0);
    if (returned == NULL || collect(call->output, returned) != 0) {
        Py_XDECREF(returned);
        return FAILED;
    }
    Py_ssize_t count = PyList_Size(returned), inputs = PyList_Size(call->inputs);
    int plain = 1;
    for (Py_ssize_t i = 0; i < count && plain == 1; i++) {
        PyObject *tensor = PyList_GetItem(returned, i);
        if (!is_plain(tensor)) plain = 0;
        bool is_new = true;
        for (Py_ssize_t k = 0; k < inputs && is_new; k++) is_new = PyList_GetItem(call->inputs, k) != tensor;
        if (!is_new || plain != 1) continue;
        long row = find((Journal *)self->journal, tensor);
        if (row == FAILED) plain = FAILED;
        if (row != NO_ROW) continue;
        plain = truth(ask(&requires_grad, tensor)); /* others may be of a backward pass by hand */
        if (plain == 1 && PyList_Append(results, tensor) != 0) plain = FAILED;
    }
    for (Py_ssize_t i = 0; i < inputs && plain == 1; i++) {
        long before = number_at(call->versions, i);
        long is = before < 0 ? before : number(ask(&version, PyList_GetItem(call->inputs, i)));
        plain = is == FAILED ? FAILED : is == before && before >= 0; /* else changed in place, or perhaps */
    }
    Py_DECREF(returned);
    return plain;
}

static int add_leaves(Observer *self, struct call *call) {
    Py_ssize_t count = PyList_Size(call->inputs);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *tensor = PyList_GetItem(call->inputs, i);
        if (number_at(call->rows, i) != NO_ROW) continue;
        long row = find((Journal *)self->journal, tensor); /* the same leaf may come twice */
        if (row == NO_ROW) row = add_leaf(self, tensor);
        PyObject *object = row == FAILED ? NULL : PyLong_FromLong(row);
        if (object == NULL || PyList_SetItem(call->rows, i, object) != 0) return -1;
    }
    return 0;
}

/* Record a call that has returned. */
static int record_call(Observer *self, struct call *call) {
    int common = self->_backward_depth > 0 || PyDict_Size(self->activations) != 0 || call->kind->is_collective
                     ? 0 : has_no_shards(self);
    if (common == 1) common = is_common((Flow *)self->_gradients);
    PyObject *results = common == 1 ? PyList_New(0) : NULL;
    if (common == 1) common = results == NULL ? FAILED : is_plain_result(self, call, results);
    int failed = common == FAILED;
    if (common == 1 && PyList_Size(results) > 0)
        failed = add_leaves(self, call) != 0 || record_op(self, call, results) != 0;
    else if (common == 0) {
        PyObject *none = call->keywords == NULL ? PyDict_New() : Py_NewRef(call->keywords);
        PyObject *done = none == NULL ? NULL
                                      : PyObject_CallMethod((PyObject *)self, "_record_results", "OOOOOOOd", call->kind,
                                                            call->arguments, none, call->inputs, call->rows,
                                                            call->versions, call->output, call->microseconds);
        Py_XDECREF(none);
        failed = done == NULL;
        Py_XDECREF(done);
    }
    Py_XDECREF(results);
    return failed ? -1 : 0;
}

/* Rows and versions of the inputs before the call: 1, 0 if one is a subclass of a tensor, or FAILED. */
static int look_at_inputs(Observer *self, struct call *call) {
    Py_ssize_t count = PyTuple_Size(call->arguments), place = 0;
    PyObject *key, *value;
    bool may_change = call->kind->may_change;
    for (Py_ssize_t i = 0; i < count; i++)
        if (collect(PyTuple_GetItem(call->arguments, i), call->inputs) != 0) return FAILED;
    while (call->keywords != NULL && PyDict_Next(call->keywords, &place, &key, &value)) {
        if (collect(value, call->inputs) != 0) return FAILED;
        if (!PyUnicode_Check(key)) return 0;
        may_change = may_change || PyUnicode_CompareWithASCIIString(key, "out") == 0 ||
                     PyUnicode_CompareWithASCIIString(key, "inplace") == 0;
    }
    count = PyList_Size(call->inputs);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *tensor = PyList_GetItem(call->inputs, i);
        if (!is_plain(tensor)) return 0;
        long is = version_of(tensor);
        if (is == FAILED || append_number(call->versions, is) != 0) return FAILED;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *tensor = PyList_GetItem(call->inputs, i);
        long row = find((Journal *)self->journal, tensor);
        /* Here an input that the call changes in place still has its old value. */
        if (row == NO_ROW && may_change)
            row = add_leaf(self, tensor);
        if (row == FAILED || append_number(call->rows, row) != 0) return FAILED;
    }
    return 1;
}

/* Record that a call has raised the error that is set. */
static void record_failure(Observer *self, struct call *call) {
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) PyException_SetTraceback(error, traceback);
    PyObject *none = call->keywords == NULL ? PyDict_New() : Py_NewRef(call->keywords);
    PyObject *done = none == NULL ? NULL
                                  : PyObject_CallMethodObjArgs((PyObject *)self, s__failed, error, call->kind,
                                                               call->arguments, none, call->inputs, NULL);
    Py_XDECREF(none);
    if (done != NULL) {
        Py_DECREF(done);
        PyErr_Restore(type, error, traceback);
        return;
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
}

/* Run and record one call; 0 if Python shall do it all. */
static int run(Observer *self, PyObject *function, struct call *call) {
    PyObject *guard = look_away();
    if (guard == NULL) return FAILED;
    int common = look_at_inputs(self, call);
    see(guard);
    if (common != 1) return common;
    double began = now();
    call->output = PyObject_Call(function, call->arguments, call->keywords);
    if (call->output == NULL) {
        if (PyErr_ExceptionMatches(PyExc_Exception)) record_failure(self, call);
        return FAILED;
    }
    call->microseconds = (now() - began) * 1e6;
    if (PyErr_Occurred() || (guard = look_away()) == NULL) return FAILED;
    int failed = record_call(self, call);
    see(guard);
    return failed ? FAILED : 1;
}

/* The kind of a function that needs nothing special; NULL, perhaps with an error, for another one. */
static Kind *common_kind(PyObject *function) {
    PyObject *kind = PyDict_GetItemWithError(kinds, function);
    if (kind == NULL) {
        if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError)) PyErr_Clear(); /* it has no hash */
        return NULL;
    }
    Kind *found = (Kind *)kind;
    if (Py_TYPE(kind) != kind_type || found->normalizes || found->is_collective ||
        PyUnicode_CompareWithASCIIString(found->name, "grad") == 0)
        return NULL;
    Py_ssize_t count = PyTuple_Size(entry_points);
    for (Py_ssize_t i = 0; i < count; i++)
        if (PyTuple_GetItem(entry_points, i) == function) return NULL;
    return found;
}

static PyObject *observer_torch_function(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Observer *self = (Observer *)object;
    if (count < 2 || count > 4) {
        PyErr_Format(PyExc_TypeError, "__torch_function__() takes 2 to 4 arguments, not %zd", count);
        return NULL;
    }
    PyObject *none = PyTuple_New(0);
    if (none == NULL) return NULL;
    struct call call = {NULL, count > 2 ? given[2] : none, count > 3 && given[3] != Py_None ? given[3] : NULL,
                        NULL, NULL, NULL, NULL, 0};
    if (call.keywords != NULL && PyDict_Check(call.keywords) && PyDict_Size(call.keywords) == 0) call.keywords = NULL;
    PyObject *answer = NULL;
    int done = FAILED, stopped;
    bool is_usual = PyTuple_Check(call.arguments) && (call.keywords == NULL || PyDict_Check(call.keywords));
    if (!self->_running && is_usual) {
        answer = PyObject_Call(given[0], call.arguments, call.keywords);
        goto end;
    }
    if ((stopped = has_error(self->_stop)) == FAILED) goto end;
    Flow *flow = (Flow *)self->_gradients;
    is_usual = is_usual && !stopped && self->aten == Py_None && flow != NULL && flow->plan == Py_None;
    call.kind = is_usual ? common_kind(given[0]) : NULL;
    if (PyErr_Occurred()) goto end;
    done = 0;
    if (call.kind != NULL) {
        Py_INCREF((PyObject *)call.kind);
        if (call.kind->silent) {
            answer = PyObject_Call(given[0], call.arguments, call.keywords);
            done = 1;
        } else {
            call.inputs = PyList_New(0);
            call.rows = PyList_New(0);
            call.versions = PyList_New(0);
            done = call.inputs && call.rows && call.versions ? run(self, given[0], &call) : FAILED;
            if (done == 1) answer = Py_NewRef(call.output);
        }
    }
    if (done == 0)
        answer = PyObject_CallMethodObjArgs(object, s_python___torch_function__, given[0], given[1], call.arguments,
                                            call.keywords, NULL);
end:
    Py_XDECREF((PyObject *)call.kind);
    Py_XDECREF(call.inputs);
    Py_XDECREF(call.rows);
    Py_XDECREF(call.versions);
    Py_XDECREF(call.output);
    Py_DECREF(none);
    return answer;
}

/* Whether the witness wants to know the first call of a module, or FAILED. */
static int is_followed(Observer *self, PyObject *module) {
    if (self->witness == Py_None) return 0;
    PyObject *classes = PyObject_GetAttr(self->witness, s_follows);
    int answer = classes == NULL ? FAILED : PyObject_IsInstance(module, classes);
    Py_XDECREF(classes);
    return answer;
}

static PyObject *observer_module_begins(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Observer *self = (Observer *)object;
    if (count != 2) {
        PyErr_Format(PyExc_TypeError, "_module_begins() takes 2 arguments, not %zd", count);
        return NULL;
    }
    if (PyThread_get_thread_ident() != self->_thread) Py_RETURN_NONE;
    if (self->_synchronizing != Py_None || PyType_IsSubtype(Py_TYPE(given[0]), (PyTypeObject *)replicated_type))
        return PyObject_CallMethodObjArgs(object, s_python__module_begins, given[0], given[1], NULL);
    PyObject *key = PyLong_FromVoidPtr(given[0]);
    PyObject *known = key == NULL ? NULL : PyDict_GetItemWithError(self->_module_rows, key);
    Py_XINCREF(known);
    if (known == NULL && !PyErr_Occurred() && PyDict_Size(self->_module_rows) > 0 && is_followed(self, given[0]) == 0) {
        long row = row_of_module(self, given[0], key);
        if (row != FAILED && row != NO_ROW && row != self->root) {
            known = PyLong_FromLong(row);
            if (known != NULL && PyDict_SetItem(self->_module_rows, key, known) != 0) Py_CLEAR(known);
        }
    }
    Py_XDECREF(key);
    if (known == NULL)
        return PyErr_Occurred() ? NULL
                                : PyObject_CallMethodObjArgs(object, s_python__module_begins, given[0], given[1], NULL);
    PyObject *entered = PyObject_CallNoArgs(scopes);
    PyObject *top = entered == NULL ? NULL : Py_BuildValue("(OnO)", known, PyTuple_Size(entered), given[0]);
    Py_DECREF(known);
    Py_XDECREF(entered);
    if (append_owned(self->_stack, top) != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *observer_module_ends(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Observer *self = (Observer *)object;
    if (count != 3) {
        PyErr_Format(PyExc_TypeError, "_module_ends() takes 3 arguments, not %zd", count);
        return NULL;
    }
    if (PyType_IsSubtype(Py_TYPE(given[0]), (PyTypeObject *)replicated_type))
        return PyObject_CallMethodObjArgs(object, s_python__module_ends, given[0], given[1], given[2], NULL);
    Py_ssize_t depth = PyThread_get_thread_ident() == self->_thread ? PyList_Size(self->_stack) : 0;
    if (depth < 0 || (depth > 0 && PyList_SetSlice(self->_stack, depth - 1, depth, NULL) != 0)) return NULL;
    Py_RETURN_NONE;
}

#define FAST(function) (PyCFunction)(void (*)(void)) function

static PyMethodDef observer_methods[] = {
    {"__torch_function__", FAST(observer_torch_function), METH_FASTCALL, NULL},
    {"_add_leaf", observer_add_leaf, METH_O, NULL},
    {"run_functional", FAST(observer_run_functional), METH_FASTCALL, NULL},
    {"_module_begins", FAST(observer_module_begins), METH_FASTCALL, NULL},
    {"_module_ends", FAST(observer_module_ends), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef observer_members[] = {
    MEMBER(Observer, T_OBJECT, journal), MEMBER(Observer, T_OBJECT, owners), MEMBER(Observer, T_OBJECT, aten),
    MEMBER(Observer, T_OBJECT, activations), MEMBER(Observer, T_OBJECT, _stop), MEMBER(Observer, T_OBJECT, _gradients),
    MEMBER(Observer, T_OBJECT, _attributes), MEMBER(Observer, T_OBJECT, _stack),
    MEMBER(Observer, T_OBJECT, _module_rows), MEMBER(Observer, T_OBJECT, _synchronizing),
    MEMBER(Observer, T_OBJECT, witness),
    MEMBER(Observer, T_ULONG, _thread), MEMBER(Observer, T_INT, _backward_depth), MEMBER(Observer, T_INT, root),
    MEMBER(Observer, T_BOOL, _running), {NULL, 0, 0, 0, NULL},
};

#define TYPE(type, lower)                                                                                              \
    static PyType_Slot lower##_slots[] = {                                                                             \
        {Py_tp_traverse, lower##_traverse}, {Py_tp_clear, lower##_clear}, {Py_tp_dealloc, lower##_free},               \
        {Py_tp_methods, lower##_methods}, {Py_tp_members, lower##_members}, {0, NULL},                                 \
    };                                                                                                                 \
    static PyType_Spec lower##_spec = {                                                                                \
        "chainrule.trace._observer." #type, sizeof(type), 0,                                                           \
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, lower##_slots,                                  \
    };
TYPE(Journal, journal)
TYPE(Flow, flow)
TYPE(Observer, observer)

/* ------------------------------------------------------------------------------------------------------- assembling */

/* Takes over `value`, which may be NULL with an error. */
static bool set(PyObject *fields, PyObject *name, PyObject *value) {
    bool done = value != NULL && PyDict_SetItem(fields, name, value) == 0;
    Py_XDECREF(value);
    return done;
}

/* A new reference to an id, or to None for NO_ROW. */
static PyObject *id_at(PyObject *ids, long row) {
    PyObject *found = row == NO_ROW ? Py_None : PyList_GetItem(ids, row);
    Py_XINCREF(found);
    return found;
}

static PyObject *ids_of(PyObject *rows, PyObject *ids) {
    Py_ssize_t count = PyList_Size(rows);
    PyObject *found = count < 0 ? NULL : PyTuple_New(count);
    for (Py_ssize_t i = 0; found != NULL && i < count; i++) {
        long row = number_at(rows, i);
        PyObject *identifier = PyErr_Occurred() ? NULL : id_at(ids, row);
        if (identifier == NULL || PyTuple_SetItem(found, i, identifier) != 0) Py_CLEAR(found);
    }
    return found;
}

/* The value of a key, which is there; a new reference. */
static PyObject *value_of(PyObject *dict, PyObject *key) {
    PyObject *value = key == NULL ? NULL : PyDict_GetItemWithError(dict, key);
    if (value == NULL && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, key);
    Py_XINCREF(value);
    return value;
}

static PyObject *id_of_module(PyObject *ids, int module) {
    PyObject *row = PyLong_FromLong(module), *identifier = value_of(ids, row);
    Py_XDECREF(row);
    return identifier;
}

static PyObject *py_op_fields(PyObject *self, PyObject *arguments) {
    PyObject *ops, *op_ids, *tensor_ids, *module_ids, *costs, *sources;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!O!O!", &PyList_Type, &ops, &PyList_Type, &op_ids, &PyList_Type,
                          &tensor_ids, &PyDict_Type, &module_ids, &PyList_Type, &costs, &PyDict_Type, &sources))
        return NULL;
    Py_ssize_t count = PyList_Size(ops);
    PyObject *all = PyList_New(count);
    for (Py_ssize_t i = 0; all != NULL && i < count; i++) {
        OpRow *op = (OpRow *)row_at(ops, (long)i, op_type);
        PyObject *cost = op == NULL ? NULL : PyList_GetItem(costs, i), *fields = cost == NULL ? NULL : PyDict_New();
        bool done = fields != NULL && set(fields, s_id, id_at(op_ids, (long)i)) &&
                    set(fields, s_name, Py_NewRef(op->name)) && set(fields, s_phase, Py_NewRef(op->phase)) &&
                    set(fields, s_module, id_of_module(module_ids, op->module)) &&
                    set(fields, s_attributes, Py_NewRef(op->attributes)) &&
                    set(fields, s_inputs, ids_of(op->inputs, tensor_ids)) &&
                    set(fields, s_outputs, ids_of(op->outputs, tensor_ids)) &&
                    set(fields, s_twin, id_at(op_ids, op->twin)) &&
                    set(fields, s_flops, Py_NewRef(PyTuple_GetItem(cost, 0))) &&
                    set(fields, s_bytes, Py_NewRef(PyTuple_GetItem(cost, 1))) &&
                    set(fields, s_source, op->source == Py_None ? Py_NewRef(Py_None) : value_of(sources, op->source));
        if (!done) Py_CLEAR(fields);
        if (fields == NULL || PyList_SetItem(all, i, fields) != 0) Py_CLEAR(all);
    }
    return all;
}

static PyObject *py_tensor_fields(PyObject *self, PyObject *arguments) {
    PyObject *tensors, *tensor_ids, *op_ids, *module_ids, *consumers, *dtypes;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!O!O!", &PyList_Type, &tensors, &PyList_Type, &tensor_ids, &PyList_Type,
                          &op_ids, &PyDict_Type, &module_ids, &PyList_Type, &consumers, &PyDict_Type, &dtypes))
        return NULL;
    Py_ssize_t count = PyList_Size(tensors);
    PyObject *all = PyList_New(count);
    for (Py_ssize_t i = 0; all != NULL && i < count; i++) {
        TensorRow *row = (TensorRow *)row_at(tensors, (long)i, tensor_row_type);
        PyObject *readers = row == NULL ? NULL : PyList_GetItem(consumers, i);
        PyObject *fields = readers == NULL ? NULL : PyDict_New();
        bool done = fields != NULL && set(fields, s_id, id_at(tensor_ids, (long)i)) &&
                    set(fields, s_name, Py_NewRef(row->name)) && set(fields, s_role, Py_NewRef(row->role)) &&
                    set(fields, s_shape, Py_NewRef(row->shape)) && set(fields, s_dtype, value_of(dtypes, row->dtype)) &&
                    set(fields, s_module, id_of_module(module_ids, row->module)) &&
                    set(fields, s_producer, id_at(op_ids, row->producer)) &&
                    set(fields, s_consumers, PyList_AsTuple(readers)) &&
                    set(fields, s_gradient_of, id_at(tensor_ids, row->gradient_of)) &&
                    set(fields, s_note, Py_NewRef(row->note));
        if (!done) Py_CLEAR(fields);
        if (fields == NULL || PyList_SetItem(all, i, fields) != 0) Py_CLEAR(all);
    }
    return all;
}

/* ----------------------------------------------------------------------------------------------------------- module */

static bool find_getter(PyObject *type, const char *name, struct getter *getter) {
    PyObject *descriptor = PyObject_GetAttrString(type, name);
    if (descriptor == NULL) return false;
    getter->get = (descrgetfunc)PyType_GetSlot(Py_TYPE(descriptor), Py_tp_descr_get);
    getter->descriptor = descriptor; /* stays */
    if (getter->get == NULL) PyErr_Format(PyExc_ImportError, "the attribute %s is no descriptor", name);
    return getter->get != NULL;
}

/* The function that a method calls, of flags METH_NOARGS or `flags`. */
static PyCFunction function_of(PyObject *object, const char *name, int flags) {
    PyObject *method = PyObject_GetAttrString(object, name);
    if (method == NULL) return NULL;
    PyCFunction function = NULL;
    if (PyCFunction_Check(method) && PyCFunction_GetFlags(method) == flags)
        function = PyCFunction_GetFunction(method);
    else
        PyErr_Format(PyExc_ImportError, "the method %s is of another kind", name);
    Py_DECREF(method);
    return function;
}

static PyObject *py_bind(PyObject *self, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"tensor", "parameter", "strided", "blindness", "clock", "dispatch_modes", "saved_hooks",
                            "wrapped", "batched", "replicated", NULL};
    PyObject **kept[] = {&strided, &blindness, &clock_now, &dispatch_modes, &saved_hooks, &wrapped, &batched,
                         &replicated_type};
    PyObject *tensor, *parameter, *found[8];
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO!OOOOOOOO!", names, &tensor, &PyType_Type, &parameter,
                                     found, found + 1, found + 2, found + 3, found + 4, found + 5, found + 6,
                                     &PyType_Type, found + 7))
        return NULL;
    PyObject *type = (PyObject *)Py_TYPE(tensor), *guard = PyObject_CallNoArgs(found[1]);
    bool known = guard != NULL && find_getter(type, "_version", &version) && find_getter(type, "grad_fn", &grad_fn) &&
                 find_getter(type, "requires_grad", &requires_grad) && find_getter(type, "dtype", &dtype) &&
                 find_getter(type, "shape", &shape) && find_getter(type, "output_nr", &output_nr) &&
                 find_getter(type, "layout", &layout) && find_getter(type, "is_meta", &is_meta) &&
                 find_getter(type, "is_nested", &is_nested) &&
                 (data_ptr = function_of(tensor, "data_ptr", METH_NOARGS)) != NULL &&
                 (numel = function_of(tensor, "numel", METH_NOARGS)) != NULL &&
                 (dim = function_of(tensor, "dim", METH_NOARGS)) != NULL &&
                 (is_floating_point = function_of(tensor, "is_floating_point", METH_NOARGS)) != NULL &&
                 (blind_enter = function_of(guard, "__enter__", METH_NOARGS)) != NULL &&
                 (blind_exit = function_of(guard, "__exit__", METH_VARARGS)) != NULL;
    Py_XDECREF(guard);
    if (!known) return NULL;
    /* What is kept here stays for good. */
    tensor_type = (PyTypeObject *)Py_NewRef(type);
    parameter_type = (PyTypeObject *)Py_NewRef(parameter);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) *kept[i] = Py_NewRef(found[i]);
    Py_RETURN_NONE;
}

static PyObject *py_use(PyObject *self, PyObject *arguments, PyObject *keywords) {
    static char *names[] = {"small", "views", "rectifiers", "leaf", "attributes", "saved_tensors", "is_user_file",
                            "scopes", "kinds", "saved_names", "entry_points", NULL};
    PyObject **kept[] = {&views, &rectifiers, &leaf_class, &attributes, &saved_tensors, &is_user_file, &scopes, &kinds,
                         &saved_names, &entry_points};
    PyObject *found[10];
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "lOOOOOOOO!O!O!", names, &small, found, found + 1,
                                     found + 2, found + 3, found + 4, found + 5, found + 6, &PyDict_Type, found + 7,
                                     &PyDict_Type, found + 8, &PyTuple_Type, found + 9))
        return NULL;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        PyObject *before = *kept[i];
        *kept[i] = Py_NewRef(found[i]);
        Py_XDECREF(before);
    }
    Py_RETURN_NONE;
}

#define WITH_NAMES(function) (PyCFunction)(void (*)(void)) function, METH_VARARGS | METH_KEYWORDS

static PyMethodDef functions[] = {
    {"bind", WITH_NAMES(py_bind), "bind(**objects): use these parts of PyTorch, or raise ImportError."},
    {"op_fields", py_op_fields, METH_VARARGS, NULL},
    {"release", release, METH_NOARGS, "release(): free what guards have kept alive."},
    {"tensor_fields", py_tensor_fields, METH_VARARGS, NULL},
    {"use", WITH_NAMES(py_use), "use(**objects): use these parts of the package."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_observer", .m_doc = "The common path of the observer; see _observer.c.",
    .m_size = -1, .m_methods = functions,
};

static int add_type(PyObject *made, const char *name, PyType_Spec *spec, PyTypeObject **kept) {
    PyObject *type = PyType_FromSpec(spec);
    if (type == NULL) return -1;
    if (kept != NULL) *kept = (PyTypeObject *)Py_NewRef(type);
    if (PyModule_AddObjectRef(made, name, type) != 0) {
        Py_DECREF(type);
        return -1;
    }
    Py_DECREF(type);
    return 0;
}

PyMODINIT_FUNC PyInit__observer(void) {
#define INTERN(name) if ((s_##name = PyUnicode_InternFromString(#name)) == NULL) return NULL;
    NAMES(INTERN)
    if ((s_empty = PyUnicode_InternFromString("")) == NULL) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && (PyModule_AddStringConstant(made, "SOURCE", SOURCE) != 0 ||
                         add_type(made, "OpRow", &op_spec, &op_type) != 0 ||
                         add_type(made, "TensorRow", &tensor_row_spec, &tensor_row_type) != 0 ||
                         add_type(made, "NodeRow", &node_spec, &node_type) != 0 ||
                         add_type(made, "Kind", &kind_spec, &kind_type) != 0 ||
                         add_type(made, "Guard", &guard_spec, &guard_type) != 0 ||
                         (unguarded = PyList_New(0)) == NULL ||
                         add_type(made, "Journal", &journal_spec, NULL) != 0 ||
                         add_type(made, "Flow", &flow_spec, NULL) != 0 ||
                         add_type(made, "Observer", &observer_spec, NULL) != 0))
        Py_CLEAR(made);
    return made;
}
