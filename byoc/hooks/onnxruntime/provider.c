/* ONNX Runtime's plug-in execution provider of the accelerator.
 *
 * The library walks ONNX Runtime's graphs and asks Python (dla.ort) where nodes run, for the shapes
 * of results, and to run a region. A request is a text: fields end with FIELD, the items of a field
 * with ITEM. Python answers with dla_reply. Python also keeps all sessions and regions; the library
 * has their numbers.
 */
#include "ort_abi.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORD "\x1e"
#define FIELD "\x1f"
#define ITEM "\x1d"
#define NAME "DlaExecutionProvider"

enum request { OPEN, PLACE, COMPILE, RUN, RELEASE, PROFILE, EVENTS };

struct text {
    char *data;
    size_t size, capacity;
    bool failed; /* no memory */
};

struct array {
    void *data;
    const int64_t *shape;
    size_t rank, nbytes;
};

struct provider {
    struct OrtEp base;
    int64_t session;
};

struct profiler {
    struct OrtProfiler base;
    int64_t session;
};

struct region {
    struct OrtCompute base;
    int64_t number;
    size_t outputs;
    size_t *ranks;
    int64_t **shapes;
};

typedef int (*Serve)(int request, int64_t number, const void *data, int64_t size, void *reply);

#define DECLARE(position, result, name, arguments) static result(*name) arguments;
ORT_FIRST_FUNCTION(DECLARE)
ORT_FUNCTIONS(DECLARE)
ORT_EP_FUNCTIONS(DECLARE)
ORT_EDITOR_FUNCTIONS(DECLARE)
#define LOAD(position, result, name, arguments) name = (result(*) arguments)table[position];

static Serve serve;

/* Texts, and requests to Python. */

static void append(struct text *text, const char *data, size_t size) {
    if (text->size + size + 1 > text->capacity) {
        size_t capacity = 2 * (text->size + size + 1);
        char *grown = realloc(text->data, capacity);
        if (grown == NULL) {
            text->failed = true;
            return;
        }
        text->data = grown;
        text->capacity = capacity;
    }
    memcpy(text->data + text->size, data, size);
    text->size += size;
    text->data[text->size] = '\0';
}

static void add(struct text *text, const char *part, const char *end) {
    if (part != NULL)
        append(text, part, strlen(part));
    append(text, end, 1);
}

void dla_connect(Serve given) { serve = given; }

void dla_reply(void *reply, const char *data, int64_t size) {
    append(reply, data, (size_t)size);
}

static OrtStatus *fail(const char *message) { return CreateStatus(ORT_FAIL, message); }

/* Send a request to Python. On failure the reply is the message of the status. */
static OrtStatus *ask(enum request request, int64_t number, const void *data, size_t size,
                      struct text *reply) {
    if (serve == NULL)
        return fail("dla: the interpreter that registered it ended; import dla.ort first");
    int failed = serve((int)request, number, data, (int64_t)size, reply);
    if (failed)
        return fail(reply->data == NULL ? "dla: Python failed" : reply->data);
    return reply->failed ? fail("dla: out of memory") : NULL;
}

static OrtStatus *ask_text(enum request request, int64_t number, const struct text *sent,
                           struct text *reply) {
    if (sent->failed)
        return fail("dla: out of memory");
    return ask(request, number, sent->data, sent->size, reply);
}

static void release(int64_t number) {
    struct text reply = {0};
    if (serve != NULL)
        serve(RELEASE, number, NULL, 0, &reply);
    free(reply.data);
}

#define TRY(call) \
    do { \
        status = (call); \
        if (status != NULL) \
            goto end; \
    } while (0)

/* Graphs as texts. */

typedef OrtStatus *(*Count)(const void *, size_t *);
typedef OrtStatus *(*List)(const void *, const OrtValueInfo **, size_t);

/* Append the names of a node's or graph's tensors, each ended by ITEM. */
static OrtStatus *add_names(struct text *text, const void *owner, Count count, List list) {
    OrtStatus *status = NULL;
    const OrtValueInfo **values = NULL;
    size_t number = 0;
    TRY(count(owner, &number));
    values = calloc(number + 1, sizeof *values);
    if (values == NULL)
        return fail("dla: out of memory");
    TRY(list(owner, values, number));
    for (size_t i = 0; i < number; i++) {
        const char *name = "";
        if (values[i] != NULL)
            TRY(GetValueInfoName(values[i], &name));
        add(text, name, ITEM);
    }
end:
    free(values);
    return status;
}

/* Append an attribute's text; nothing if the node has no such attribute. */
static OrtStatus *add_attribute(struct text *text, const OrtNode *node, const char *name) {
    const OrtOpAttr *attribute = NULL;
    size_t size = 0;
    OrtStatus *status = Node_GetAttributeByName(node, name, &attribute);
    if (status != NULL || attribute == NULL)
        return status;
    /* the first call reports the size, and fails because the buffer is too small */
    status = ReadOpAttr(attribute, ORT_STRING, NULL, 0, &size);
    if (status != NULL)
        ReleaseStatus(status);
    char *content = calloc(size + 1, 1);
    if (content == NULL)
        return fail("dla: out of memory");
    status = ReadOpAttr(attribute, ORT_STRING, content, size, &size);
    if (status == NULL)
        append(text, content, strlen(content));
    free(content);
    return status;
}

/* Append a node: name, operator, inputs, outputs, and the attributes of an EPContext node. */
static OrtStatus *add_node(struct text *text, const OrtNode *node) {
    OrtStatus *status = NULL;
    const char *name = "";
    const char *kind = "";
    TRY(Node_GetName(node, &name));
    TRY(Node_GetOperatorType(node, &kind));
    add(text, name, FIELD);
    add(text, kind, FIELD);
    TRY(add_names(text, node, (Count)Node_GetNumInputs, (List)Node_GetInputs));
    TRY(add_names(text, node, (Count)Node_GetNumImplicitInputs, (List)Node_GetImplicitInputs));
    append(text, FIELD, 1);
    TRY(add_names(text, node, (Count)Node_GetNumOutputs, (List)Node_GetOutputs));
    append(text, FIELD, 1);
    if (strcmp(kind, "EPContext") == 0) {
        TRY(add_attribute(text, node, "source"));
        append(text, FIELD, 1);
        TRY(add_attribute(text, node, "ep_cache_context"));
    }
    append(text, RECORD, 1);
end:
    return status;
}

static const OrtNode **list_nodes(const OrtGraph *graph, size_t *number, OrtStatus **failed) {
    OrtStatus *status = NULL;
    const OrtNode **nodes = NULL;
    TRY(Graph_GetNumNodes(graph, number));
    nodes = calloc(*number + 1, sizeof *nodes);
    if (nodes != NULL)
        TRY(Graph_GetNodes(graph, nodes, *number));
    else
        status = fail("dla: out of memory");
end:
    *failed = status;
    return nodes;
}

/* Append the file of the model and the names of the graph's outputs. */
static OrtStatus *add_head(struct text *text, const OrtGraph *graph) {
    OrtStatus *status = NULL;
    const char *path = "";
    TRY(Graph_GetModelPath(graph, &path));
    add(text, path, FIELD);
    TRY(add_names(text, graph, (Count)Graph_GetNumOutputs, (List)Graph_GetOutputs));
    append(text, RECORD, 1);
end:
    return status;
}

/* Regions: Python names their nodes, compiles them and runs them. */

static OrtStatus *place(struct OrtEp *ep, const OrtGraph *graph, OrtSupport *support) {
    OrtStatus *status = NULL;
    struct text sent = {0};
    struct text reply = {0};
    const OrtNode *parent = NULL;
    const OrtNode **nodes = NULL;
    const OrtNode **chosen = NULL;
    size_t number = 0;
    TRY(Graph_GetParentNode(graph, &parent));
    if (parent != NULL) /* the body of a branch or a loop */
        return NULL;
    TRY(add_head(&sent, graph));
    nodes = list_nodes(graph, &number, &status);
    if (status != NULL)
        goto end;
    for (size_t i = 0; i < number; i++)
        TRY(add_node(&sent, nodes[i]));
    TRY(ask_text(PLACE, ((struct provider *)ep)->session, &sent, &reply));
    chosen = calloc(number + 1, sizeof *chosen);
    if (chosen == NULL)
        TRY(fail("dla: out of memory"));
    size_t size = 0;
    for (char *at = reply.data; at != NULL && *at != '\0';) { /* "0 1 2;5 6;" */
        char *end = at;
        size_t node = strtoull(at, &end, 10);
        if (end != at && node < number && size < number)
            chosen[size++] = nodes[node];
        if (*end == ';' && size > 0) {
            struct OrtFusionOptions options = {ORT_VERSION, true};
            TRY(AddNodesToFuse(support, chosen, size, &options));
            size = 0;
        }
        at = *end == '\0' ? end : end + 1;
    }
end:
    free(nodes);
    free(chosen);
    free(sent.data);
    free(reply.data);
    return status;
}

static OrtStatus *create_state(struct OrtCompute *region, void *context, void **state) {
    (void)context;
    *state = region;
    return NULL;
}

static void release_state(struct OrtCompute *region, void *state) {
    (void)region;
    (void)state;
}

static OrtStatus *compute(struct OrtCompute *base, void *state, OrtKernelContext *context) {
    struct region *region = (struct region *)base;
    OrtStatus *status = NULL;
    struct text reply = {0};
    struct array *arrays = NULL;
    size_t inputs = 0;
    (void)state;
    TRY(KernelContext_GetInputCount(context, &inputs));
    arrays = calloc(inputs + region->outputs + 1, sizeof *arrays);
    if (arrays == NULL)
        return fail("dla: out of memory");
    for (size_t i = 0; i < inputs + region->outputs; i++) {
        const OrtValue *value = NULL;
        int type = 0;
        if (i < inputs) {
            const void *data = NULL;
            TRY(KernelContext_GetInput(context, i, &value));
            TRY(GetTensorData(value, &data));
            memcpy(&arrays[i].data, &data, sizeof data); /* Python does not write to it */
        } else {
            size_t output = i - inputs;
            OrtValue *made = NULL;
            TRY(KernelContext_GetOutput(context, output, region->shapes[output],
                                        region->ranks[output], &made));
            TRY(GetTensorMutableData(made, &arrays[i].data));
            value = made;
        }
        TRY(GetTensorSizeInBytes(value, &arrays[i].nbytes));
        TRY(GetTensorElementTypeAndShapeDataReference(value, &type, &arrays[i].shape,
                                                      &arrays[i].rank));
    }
    TRY(ask(RUN, region->number, arrays, inputs + region->outputs, &reply));
end:
    free(arrays);
    free(reply.data);
    return status;
}

static void release_region(struct region *region) {
    if (region == NULL)
        return;
    for (size_t i = 0; region->shapes != NULL && i < region->outputs; i++)
        free(region->shapes[i]);
    free(region->shapes);
    free(region->ranks);
    release(region->number);
    free(region);
}

static void release_regions(struct OrtEp *ep, struct OrtCompute **regions, size_t number) {
    (void)ep;
    for (size_t i = 0; i < number; i++)
        release_region((struct region *)regions[i]);
}

/* Read at most ``most`` numbers, move ``*at`` to the character after them; return their count. */
static size_t read_numbers(char **at, int64_t *numbers, size_t most) {
    size_t count = 0;
    while (count < most) {
        char *end = *at;
        long long number = strtoll(*at, &end, 10);
        if (end == *at)
            break;
        numbers[count++] = number;
        *at = end;
    }
    return count;
}

/* Make a region from "NUMBER OUTPUTS;1 10;1 3 8 8;" and return it. */
static struct region *make_region(char **at) {
    int64_t head[2] = {0};
    int64_t shape[64];
    struct region *region = calloc(1, sizeof *region);
    if (region == NULL || read_numbers(at, head, 2) != 2)
        goto failed;
    region->base.version = ORT_VERSION;
    region->base.CreateState = create_state;
    region->base.Compute = compute;
    region->base.ReleaseState = release_state;
    region->number = head[0];
    region->outputs = (size_t)head[1];
    region->ranks = calloc(region->outputs + 1, sizeof *region->ranks);
    region->shapes = calloc(region->outputs + 1, sizeof *region->shapes);
    if (region->ranks == NULL || region->shapes == NULL)
        goto failed;
    for (size_t i = 0; i < region->outputs; i++) {
        (*at)++; /* the semicolon */
        size_t rank = read_numbers(at, shape, 64);
        region->shapes[i] = calloc(rank + 1, sizeof shape[0]);
        if (region->shapes[i] == NULL)
            goto failed;
        memcpy(region->shapes[i], shape, rank * sizeof shape[0]);
        region->ranks[i] = rank;
    }
    (*at)++;
    return region;
failed:
    if (region != NULL)
        release_region(region);
    return NULL;
}

/* Make the EPContext node that replaces a fused node, with the attributes that Python wrote. */
static OrtStatus *make_context(const OrtNode *fused, const char *content, int64_t embedded,
                               OrtNode **made) {
    OrtStatus *status = NULL;
    OrtOpAttr *attributes[5] = {0};
    const char *names[2][64] = {{0}};
    const OrtValueInfo *values[64];
    size_t counts[2] = {0};
    const char *name = "";
    const int64_t main_context = 1;
    TRY(Node_GetName(fused, &name));
    TRY(Node_GetNumInputs(fused, &counts[0]));
    TRY(Node_GetNumOutputs(fused, &counts[1]));
    if (counts[0] > 64 || counts[1] > 64)
        TRY(fail("dla: a region has more than 64 inputs or outputs; EPContext cannot store it"));
    for (int side = 0; side < 2; side++) {
        TRY(side ? Node_GetOutputs(fused, values, counts[1])
                 : Node_GetInputs(fused, values, counts[0]));
        for (size_t i = 0; i < counts[side]; i++)
            TRY(GetValueInfoName(values[i], &names[side][i]));
    }
    TRY(CreateOpAttr("main_context", &main_context, 1, ORT_INT, &attributes[0]));
    TRY(CreateOpAttr("embed_mode", &embedded, 1, ORT_INT, &attributes[1]));
    TRY(CreateOpAttr("source", NAME, (int)strlen(NAME), ORT_STRING, &attributes[2]));
    TRY(CreateOpAttr("partition_name", name, (int)strlen(name), ORT_STRING, &attributes[3]));
    TRY(CreateOpAttr("ep_cache_context", content, (int)strlen(content), ORT_STRING,
                     &attributes[4]));
    TRY(CreateNode("EPContext", "com.microsoft", name, names[0], counts[0], names[1], counts[1],
                   attributes, 5, made));
end:
    for (size_t i = 0; i < 5; i++)
        if (attributes[i] != NULL)
            ReleaseOpAttr(attributes[i]);
    return status;
}

/* Compile one fused node. Python's reply: a region, then "MODE;CONTENT" of an EPContext node. */
static OrtStatus *compile_node(struct provider *provider, const OrtGraph *graph,
                               const OrtNode *fused, struct OrtCompute **made, OrtNode **context) {
    OrtStatus *status = NULL;
    struct text sent = {0};
    struct text reply = {0};
    const OrtNode **nodes = NULL;
    size_t number = 0;
    int64_t embedded = 0;
    TRY(add_head(&sent, graph));
    TRY(add_node(&sent, fused));
    nodes = list_nodes(graph, &number, &status);
    if (status != NULL)
        goto end;
    for (size_t i = 0; i < number; i++)
        TRY(add_node(&sent, nodes[i]));
    TRY(ask_text(COMPILE, provider->session, &sent, &reply));
    char *at = reply.data;
    *made = at == NULL ? NULL : (struct OrtCompute *)make_region(&at);
    if (*made == NULL)
        TRY(fail("dla: out of memory"));
    if (read_numbers(&at, &embedded, 1) == 1 && context != NULL)
        TRY(make_context(fused, at + 1, embedded, context));
end:
    free(nodes);
    free(sent.data);
    free(reply.data);
    return status;
}

static OrtStatus *compile(struct OrtEp *ep, const OrtGraph **graphs, const OrtNode **fused,
                          size_t number, struct OrtCompute **made, OrtNode **contexts) {
    OrtStatus *status = NULL;
    for (size_t i = 0; i < number && status == NULL; i++)
        status = compile_node((struct provider *)ep, graphs[i], fused[i], &made[i],
                              contexts == NULL ? NULL : &contexts[i]);
    return status;
}

/* Profiling: Python keeps an event for each run of a region. */

static void release_profiler(struct OrtProfiler *profiler) { free(profiler); }

static OrtStatus *start_profiling(struct OrtProfiler *profiler, int64_t offset_ns) {
    struct text reply = {0};
    char offset[32];
    int size = snprintf(offset, sizeof offset, "%" PRId64, offset_ns);
    int64_t session = ((struct profiler *)profiler)->session;
    OrtStatus *status = ask(PROFILE, session, offset, (size_t)size, &reply);
    free(reply.data);
    return status;
}

/* Give ONNX Runtime the events: name, process, thread, start and duration in us, cycles. */
static OrtStatus *end_profiling(struct OrtProfiler *profiler, OrtEvents *events) {
    static const char *const keys[] = {"provider", "cycles"};
    struct text reply = {0};
    OrtStatus *status = NULL;
    OrtEvent *event = NULL;
    TRY(ask(EVENTS, ((struct profiler *)profiler)->session, NULL, 0, &reply));
    for (char *at = reply.data; at != NULL && *at != '\0';) {
        char *parts[6] = {0};
        for (int i = 0; i < 6; i++) {
            parts[i] = at;
            at += strcspn(at, FIELD RECORD);
            if (*at != '\0')
                *at++ = '\0';
        }
        const char *values[] = {NAME, parts[5]};
        TRY(CreateProfilingEvent(2, (int32_t)strtol(parts[1], NULL, 10),
                                 (int32_t)strtol(parts[2], NULL, 10), parts[0],
                                 strtoll(parts[3], NULL, 10), strtoll(parts[4], NULL, 10), keys,
                                 values, 2, &event));
        const OrtEvent *added = event;
        TRY(AddEvents(events, &added, 1));
        ReleaseProfilingEvent(event);
        event = NULL;
    }
end:
    if (event != NULL)
        ReleaseProfilingEvent(event);
    free(reply.data);
    return status;
}

static OrtStatus *create_profiler(struct OrtEp *ep, struct OrtProfiler **made) {
    struct profiler *profiler = calloc(1, sizeof *profiler);
    if (profiler == NULL)
        return fail("dla: out of memory");
    profiler->base.version = ORT_VERSION;
    profiler->base.Release = release_profiler;
    profiler->base.StartProfiling = start_profiling;
    profiler->base.EndProfiling = end_profiling;
    profiler->session = ((struct provider *)ep)->session;
    *made = &profiler->base;
    return NULL;
}

/* The provider of a session, and the factory of providers. */

static const char *ep_name(const struct OrtEp *ep) {
    (void)ep;
    return NAME;
}

static const char *factory_name(const struct OrtEpFactory *factory) {
    (void)factory;
    return NAME;
}

static const char *vendor(const struct OrtEpFactory *factory) {
    (void)factory;
    return "dla";
}

static uint32_t vendor_id(const struct OrtEpFactory *factory) {
    (void)factory;
    return 0;
}

static const char *version(const struct OrtEpFactory *factory) {
    (void)factory;
    return "1.0.0";
}

/* Tensors stay in ONNX Runtime's own memory: no allocator, no transfers, no streams. */

static OrtStatus *create_allocator(struct OrtEpFactory *factory, const void *memory,
                                   const OrtKeyValuePairs *options, void **allocator) {
    (void)factory;
    (void)memory;
    (void)options;
    *allocator = NULL;
    return NULL;
}

static void release_allocator(struct OrtEpFactory *factory, void *allocator) {
    (void)factory;
    (void)allocator;
}

static OrtStatus *create_transfer(struct OrtEpFactory *factory, void **transfer) {
    (void)factory;
    *transfer = NULL;
    return NULL;
}

static bool has_streams(const struct OrtEpFactory *factory) {
    (void)factory;
    return false;
}

static OrtStatus *list_devices(struct OrtEpFactory *factory,
                               const OrtHardwareDevice *const *devices, size_t number,
                               OrtEpDevice **made, size_t most, size_t *count) {
    *count = 0;
    for (size_t i = 0; i < number; i++)
        if (HardwareDevice_Type(devices[i]) == ORT_CPU && most > 0) {
            *count = 1; /* the simulated machine, in this computer's memory */
            return CreateEpDevice(factory, devices[i], NULL, NULL, made);
        }
    return NULL;
}

static OrtStatus *create_ep(struct OrtEpFactory *factory, const OrtHardwareDevice *const *devices,
                            const OrtKeyValuePairs *const *metadata, size_t number,
                            const OrtSessionOptions *options, const void *logger,
                            struct OrtEp **made) {
    OrtStatus *status = NULL;
    struct text sent = {0};
    struct text reply = {0};
    OrtKeyValuePairs *pairs = NULL;
    const char *const *keys = NULL;
    const char *const *values = NULL;
    size_t count = 0;
    struct provider *provider = calloc(1, sizeof *provider);
    (void)factory;
    (void)devices;
    (void)metadata;
    (void)number;
    (void)logger;
    if (provider == NULL)
        return fail("dla: out of memory");
    TRY(GetSessionOptionsConfigEntries(options, &pairs));
    GetKeyValuePairs(pairs, &keys, &values, &count);
    for (size_t i = 0; i < count; i++) {
        add(&sent, keys[i], FIELD);
        add(&sent, values[i], RECORD);
    }
    TRY(ask_text(OPEN, 0, &sent, &reply));
    provider->session = strtoll(reply.data == NULL ? "" : reply.data, NULL, 10);
    provider->base.version = ORT_VERSION;
    provider->base.GetName = ep_name;
    provider->base.GetCapability = place;
    provider->base.Compile = compile;
    provider->base.ReleaseNodeComputeInfos = release_regions;
    provider->base.CreateProfiler = create_profiler;
    *made = &provider->base;
    provider = NULL;
end:
    if (pairs != NULL)
        ReleaseKeyValuePairs(pairs);
    free(provider);
    free(sent.data);
    free(reply.data);
    return status;
}

static void release_ep(struct OrtEpFactory *factory, struct OrtEp *ep) {
    (void)factory;
    if (ep == NULL)
        return;
    release(((struct provider *)ep)->session);
    free(ep);
}

/* Static, because a session that outlives the registration still releases its provider by it. */
static struct OrtEpFactory factory = {
    .version = ORT_VERSION,
    .GetName = factory_name,
    .GetVendor = vendor,
    .GetSupportedDevices = list_devices,
    .CreateEp = create_ep,
    .ReleaseEp = release_ep,
    .GetVendorId = vendor_id,
    .GetVersion = version,
    .CreateAllocator = create_allocator,
    .ReleaseAllocator = release_allocator,
    .CreateDataTransfer = create_transfer,
    .IsStreamAware = has_streams,
};

/* Entry points that ONNX Runtime looks up. */

OrtStatus *CreateEpFactories(const char *registered, const struct OrtApiBase *base,
                             const void *logger, struct OrtEpFactory **made, size_t most,
                             size_t *count);
OrtStatus *ReleaseEpFactory(struct OrtEpFactory *released);

OrtStatus *CreateEpFactories(const char *registered, const struct OrtApiBase *base,
                             const void *logger, struct OrtEpFactory **made, size_t most,
                             size_t *count) {
    (void)registered;
    (void)logger;
    *count = 0;
    const OrtFunction *table = base->GetApi(1);
    ORT_FIRST_FUNCTION(LOAD)
    const char *version = base->GetVersionString();
    /* GetApi prints a second line for a version that it does not have */
    bool old = strncmp(version, "1.", 2) == 0 && strtol(version + 2, NULL, 10) < ORT_VERSION;
    table = old ? NULL : base->GetApi(ORT_VERSION);
    if (table == NULL) {
        char message[128];
        snprintf(message, sizeof message,
                 "dla needs ONNX Runtime 1.%d or later, and this is %s; pip install -U onnxruntime",
                 ORT_VERSION, version);
        return fail(message);
    }
    ORT_FUNCTIONS(LOAD)
    table = GetEpApi();
    ORT_EP_FUNCTIONS(LOAD)
    const OrtFunction *editor = GetModelEditorApi();
    table = editor;
    ORT_EDITOR_FUNCTIONS(LOAD)
    if (serve == NULL)
        return fail("dla: get the library's path from dla.ort.get_library_path() in this process");
    if (most == 0)
        return fail("dla: ONNX Runtime has no place for a factory");
    made[0] = &factory;
    *count = 1;
    return NULL;
}

OrtStatus *ReleaseEpFactory(struct OrtEpFactory *released) {
    (void)released;
    return NULL;
}
