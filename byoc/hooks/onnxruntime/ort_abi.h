/* The part of ONNX Runtime's C interface that provider.c uses, declared from its documented ABI.
 *
 * The tables OrtApi, OrtEpApi and OrtModelEditorApi are arrays of functions to which a release only
 * appends, so that a position is valid for every release from ORT_VERSION on. The structures that a
 * provider fills start with the version that they follow; a later release reads nothing behind it.
 */
#ifndef DLA_ORT_ABI_H
#define DLA_ORT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORT_VERSION 29 /* ONNX Runtime 1.29: the oldest release that this declaration follows */

enum { ORT_FAIL = 1, ORT_CPU = 0, ORT_STRING = 5, ORT_INT = 1 };

typedef struct OrtStatus OrtStatus;
typedef struct OrtGraph OrtGraph;
typedef struct OrtNode OrtNode;
typedef struct OrtValue OrtValue;
typedef struct OrtValueInfo OrtValueInfo;
typedef struct OrtOpAttr OrtOpAttr;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtHardwareDevice OrtHardwareDevice;
typedef struct OrtEpDevice OrtEpDevice;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtSupport OrtSupport; /* OrtEpGraphSupportInfo */
typedef struct OrtEvent OrtEvent;     /* OrtProfilingEvent */
typedef struct OrtEvents OrtEvents;   /* OrtProfilingEventsContainer */
typedef void (*OrtFunction)(void);

struct OrtApiBase {
    const OrtFunction *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
};

/* F(position, result, name, arguments) */
#define ORT_FIRST_FUNCTION(F) F(0, OrtStatus *, CreateStatus, (int code, const char *text))

#define ORT_FUNCTIONS(F) \
    F(51, OrtStatus *, GetTensorMutableData, (OrtValue *, void **)) \
    F(88, OrtStatus *, KernelContext_GetInputCount, (const OrtKernelContext *, size_t *)) \
    F(90, OrtStatus *, KernelContext_GetInput, \
      (const OrtKernelContext *, size_t, const OrtValue **)) \
    F(91, OrtStatus *, KernelContext_GetOutput, \
      (OrtKernelContext *, size_t, const int64_t *, size_t, OrtValue **)) \
    F(93, void, ReleaseStatus, (OrtStatus *)) \
    F(211, OrtStatus *, CreateOpAttr, (const char *, const void *, int, int, OrtOpAttr **)) \
    F(212, void, ReleaseOpAttr, (OrtOpAttr *)) \
    F(272, OrtStatus *, ReadOpAttr, (const OrtOpAttr *, int, void *, size_t, size_t *)) \
    F(289, OrtStatus *, GetValueInfoName, (const OrtValueInfo *, const char **)) \
    F(291, const OrtFunction *, GetModelEditorApi, (void)) \
    F(298, void, GetKeyValuePairs, \
      (const OrtKeyValuePairs *, const char *const **, const char *const **, size_t *)) \
    F(300, void, ReleaseKeyValuePairs, (OrtKeyValuePairs *)) \
    F(307, int, HardwareDevice_Type, (const OrtHardwareDevice *)) \
    F(317, const OrtFunction *, GetEpApi, (void)) \
    F(318, OrtStatus *, GetTensorSizeInBytes, (const OrtValue *, size_t *)) \
    F(334, OrtStatus *, Graph_GetModelPath, (const OrtGraph *, const char **)) \
    F(340, OrtStatus *, Graph_GetNumOutputs, (const OrtGraph *, size_t *)) \
    F(341, OrtStatus *, Graph_GetOutputs, (const OrtGraph *, const OrtValueInfo **, size_t)) \
    F(344, OrtStatus *, Graph_GetNumNodes, (const OrtGraph *, size_t *)) \
    F(345, OrtStatus *, Graph_GetNodes, (const OrtGraph *, const OrtNode **, size_t)) \
    F(346, OrtStatus *, Graph_GetParentNode, (const OrtGraph *, const OrtNode **)) \
    F(349, OrtStatus *, Node_GetName, (const OrtNode *, const char **)) \
    F(350, OrtStatus *, Node_GetOperatorType, (const OrtNode *, const char **)) \
    F(353, OrtStatus *, Node_GetNumInputs, (const OrtNode *, size_t *)) \
    F(354, OrtStatus *, Node_GetInputs, (const OrtNode *, const OrtValueInfo **, size_t)) \
    F(355, OrtStatus *, Node_GetNumOutputs, (const OrtNode *, size_t *)) \
    F(356, OrtStatus *, Node_GetOutputs, (const OrtNode *, const OrtValueInfo **, size_t)) \
    F(357, OrtStatus *, Node_GetNumImplicitInputs, (const OrtNode *, size_t *)) \
    F(358, OrtStatus *, Node_GetImplicitInputs, (const OrtNode *, const OrtValueInfo **, size_t)) \
    F(361, OrtStatus *, Node_GetAttributeByName, \
      (const OrtNode *, const char *, const OrtOpAttr **)) \
    F(378, OrtStatus *, GetTensorData, (const OrtValue *, const void **)) \
    F(379, OrtStatus *, GetSessionOptionsConfigEntries, \
      (const OrtSessionOptions *, OrtKeyValuePairs **)) \
    F(414, OrtStatus *, GetTensorElementTypeAndShapeDataReference, \
      (const OrtValue *, int *, const int64_t **, size_t *))

#define ORT_EP_FUNCTIONS(F) \
    F(0, OrtStatus *, CreateEpDevice, \
      (struct OrtEpFactory *, const OrtHardwareDevice *, const OrtKeyValuePairs *, \
       const OrtKeyValuePairs *, OrtEpDevice **)) \
    F(2, OrtStatus *, AddNodesToFuse, \
      (OrtSupport *, const OrtNode *const *, size_t, const struct OrtFusionOptions *)) \
    F(65, OrtStatus *, CreateProfilingEvent, \
      (int, int32_t, int32_t, const char *, int64_t, int64_t, const char *const *, \
       const char *const *, size_t, OrtEvent **)) \
    F(66, void, ReleaseProfilingEvent, (OrtEvent *)) \
    F(72, OrtStatus *, AddEvents, (OrtEvents *, const OrtEvent *const *, size_t))

#define ORT_EDITOR_FUNCTIONS(F) \
    F(6, OrtStatus *, CreateNode, \
      (const char *, const char *, const char *, const char *const *, size_t, \
       const char *const *, size_t, OrtOpAttr **, size_t, OrtNode **))

struct OrtFusionOptions {
    uint32_t version;
    bool drop_constant_initializers;
};

struct OrtCompute {
    uint32_t version;
    OrtStatus *(*CreateState)(struct OrtCompute *, void *context, void **state);
    OrtStatus *(*Compute)(struct OrtCompute *, void *state, OrtKernelContext *);
    void (*ReleaseState)(struct OrtCompute *, void *state);
};

struct OrtProfiler {
    uint32_t version;
    void (*Release)(struct OrtProfiler *);
    OrtStatus *(*StartProfiling)(struct OrtProfiler *, int64_t offset_ns);
    OrtStatus *(*StartEvent)(struct OrtProfiler *, uint64_t id);
    OrtStatus *(*StopEvent)(struct OrtProfiler *, uint64_t id, const OrtEvent *);
    OrtStatus *(*EndProfiling)(struct OrtProfiler *, OrtEvents *);
};

struct OrtEp { /* a provider leaves members that it does not implement NULL */
    uint32_t version;
    const char *(*GetName)(const struct OrtEp *);
    OrtStatus *(*GetCapability)(struct OrtEp *, const OrtGraph *, OrtSupport *);
    OrtStatus *(*Compile)(struct OrtEp *, const OrtGraph **, const OrtNode **, size_t,
                          struct OrtCompute **, OrtNode **contexts);
    void (*ReleaseNodeComputeInfos)(struct OrtEp *, struct OrtCompute **, size_t);
    OrtFunction unused[11]; /* GetPreferredDataLayout to Sync */
    OrtStatus *(*CreateProfiler)(struct OrtEp *, struct OrtProfiler **);
    OrtFunction rest[9]; /* IsGraphCaptureEnabled to GetWeightlessSupport */
};

struct OrtEpFactory {
    uint32_t version;
    const char *(*GetName)(const struct OrtEpFactory *);
    const char *(*GetVendor)(const struct OrtEpFactory *);
    OrtStatus *(*GetSupportedDevices)(struct OrtEpFactory *, const OrtHardwareDevice *const *,
                                      size_t, OrtEpDevice **, size_t, size_t *);
    OrtStatus *(*CreateEp)(struct OrtEpFactory *, const OrtHardwareDevice *const *,
                           const OrtKeyValuePairs *const *, size_t, const OrtSessionOptions *,
                           const void *logger, struct OrtEp **);
    void (*ReleaseEp)(struct OrtEpFactory *, struct OrtEp *);
    uint32_t (*GetVendorId)(const struct OrtEpFactory *);
    const char *(*GetVersion)(const struct OrtEpFactory *);
    OrtFunction ValidateCompiledModelCompatibilityInfo;
    OrtStatus *(*CreateAllocator)(struct OrtEpFactory *, const void *memory,
                                  const OrtKeyValuePairs *, void **allocator);
    void (*ReleaseAllocator)(struct OrtEpFactory *, void *allocator);
    OrtStatus *(*CreateDataTransfer)(struct OrtEpFactory *, void **transfer);
    bool (*IsStreamAware)(const struct OrtEpFactory *);
    OrtFunction rest[8]; /* CreateSyncStreamForDevice to SelectBestModelCandidate */
};

#endif
