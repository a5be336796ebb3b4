// Streams, events and graphs. Work is done when it is asked for, so that nothing is ever waited
// for; what is kept is what CUDA refuses. Handles are never freed, so that late uses are told.
#include <set>
#include <utility>
#include <vector>

#include "report.h"
#include "runtime.h"

using Work = std::function<void()>;

// The names are CUDA's.
struct CUgraph_st {
  std::vector<Work> work;
  bool live = true;
};

struct CUgraphExec_st {
  std::vector<Work> work;
  bool live = true;
};

struct CUevent_st {
  int device = 0;
  bool live = true;
  bool captured = false;
};

struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  bool live = true;
  // While it is captured:
  CUgraph_st* graph = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool invalid = false;          // by a call that is not allowed then
  const void* thread = nullptr;  // that began it
};

namespace subbyte::interpreter {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
thread_local const char thread_mark = 0;  // its address tells threads apart

std::set<CUstream_st*>& captured_streams() {
  static auto& streams = *new std::set<CUstream_st*>;
  return streams;
}

bool is_default(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamPerThread || stream == cudaStreamLegacy;
}

/// Whether a capture forbids this thread calls that may wait (CUDA's documentation of
/// cudaThreadExchangeStreamCaptureMode).
bool forbids(const CUstream_st& stream) {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
  const bool is_own = stream.thread == &thread_mark;
  if (stream.mode == cudaStreamCaptureModeThreadLocal) return is_own;
  if (stream.mode == cudaStreamCaptureModeRelaxed) return false;
  return is_own || thread_mode == cudaStreamCaptureModeGlobal;
}

bool is_live(cudaEvent_t event) {
  return event != nullptr && event->live;
}

cudaError_t bad_event() {
  return misused(cudaErrorInvalidResourceHandle, "no event");
}

}  // namespace

bool is_captured(cudaStream_t stream) {
  return !is_default(stream) && stream->graph != nullptr;
}

cudaError_t check_stream(cudaStream_t stream) {
  if (is_default(stream)) return cudaSuccess;
  if (!stream->live) {
    return misused(cudaErrorInvalidResourceHandle, "a stream is used that was destroyed");
  }
  return cudaSuccess;
}

cudaError_t check_capture(const char* what) {
  const Lock lock(runtime_mutex());
  for (CUstream_st* stream : captured_streams()) {
    if (!forbids(*stream)) continue;
    stream->invalid = true;
    return misused(cudaErrorStreamCaptureUnsupported, "%s while a stream is captured", what);
  }
  return cudaSuccess;
}

cudaError_t check_default_stream(const char* what, cudaStream_t stream) {
  if (stream != nullptr && stream != cudaStreamLegacy) return cudaSuccess;
  const Lock lock(runtime_mutex());
  for (CUstream_st* captured : captured_streams()) {
    const bool waits = (captured->flags & cudaStreamNonBlocking) == 0;
    if (!waits || captured->mode == cudaStreamCaptureModeRelaxed) continue;
    captured->invalid = true;
    return misused(cudaErrorStreamCaptureImplicit,
                   "%s in the default stream, for which a captured one waits", what);
  }
  return cudaSuccess;
}

cudaError_t enqueue(const char* what, cudaStream_t stream, Work work) {
  const Lock lock(runtime_mutex());
  if (const cudaError_t error = check_stream(stream)) return error;
  if (const cudaError_t error = check_default_stream(what, stream)) return error;
  if (is_captured(stream)) {
    stream->graph->work.push_back(std::move(work));
  } else {
    work();
  }
  return cudaSuccess;
}

}  // namespace subbyte::interpreter

using namespace subbyte::interpreter;

extern "C" {

// --- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  *stream = new CUstream_st{.device = current_device(), .flags = flags};
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (is_default(stream)) {
    return misused(cudaErrorInvalidResourceHandle, "a default stream is destroyed");
  }
  if (const cudaError_t error = check_stream(stream)) return error;
  if (stream->graph != nullptr) remark("a stream is destroyed that is captured");
  stream->live = false;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = check_stream(stream)) return error;
  if (is_captured(stream)) {
    stream->invalid = true;
    return misused(cudaErrorStreamCaptureUnsupported, "a captured stream is waited for");
  }
  return check_default_stream("cudaStreamSynchronize", stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const cudaError_t error = check_stream(stream)) return error;
  return is_live(event) ? cudaSuccess : bad_event();
}

// --- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st{.device = current_device()};
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!is_live(event)) return bad_event();
  event->live = false;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!is_live(event)) return bad_event();
  if (const cudaError_t error = check_stream(stream)) return error;
  const int device = is_default(stream) ? current_device() : stream->device;
  if (event->device != device) {
    return misused(cudaErrorInvalidResourceHandle, "an event of device %d in a stream of %d",
                   event->device, device);
  }
  event->captured = is_captured(stream);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (!is_live(event)) return bad_event();
  if (event->captured) return misused(cudaErrorCapturedEvent, "a captured event is waited for");
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1;  // of no meaning, but positive
  return cudaSuccess;
}

// --- graphs

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  if (const cudaError_t error = check_stream(stream)) return error;
  if (const cudaError_t error = check_default_stream("cudaStreamIsCapturing", stream)) return error;
  *status = !is_captured(stream) ? cudaStreamCaptureStatusNone
            : stream->invalid    ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Lock lock(runtime_mutex());
  if (is_default(stream)) {
    return misused(cudaErrorStreamCaptureUnsupported, "a default stream is captured");
  }
  if (const cudaError_t error = check_stream(stream)) return error;
  if (is_captured(stream)) return misused(cudaErrorIllegalState, "a capture within a capture");
  stream->graph = new CUgraph_st;
  stream->mode = mode;
  stream->invalid = false;
  stream->thread = &thread_mark;
  captured_streams().insert(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(runtime_mutex());
  *graph = nullptr;
  if (!is_captured(stream)) return misused(cudaErrorIllegalState, "no capture is ended");
  if (stream->mode != cudaStreamCaptureModeRelaxed && stream->thread != &thread_mark) {
    return misused(cudaErrorStreamCaptureWrongThread, "a capture is ended by another thread");
  }
  captured_streams().erase(stream);
  CUgraph_st* made = std::exchange(stream->graph, nullptr);
  if (stream->invalid) return failed(cudaErrorStreamCaptureInvalidated);
  *graph = made;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* instance, cudaGraph_t graph, unsigned long long) {
  *instance = nullptr;
  if (graph == nullptr || !graph->live) return misused(cudaErrorInvalidValue, "no graph");
  *instance = new CUgraphExec_st{.work = graph->work};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t instance, cudaStream_t stream) {
  if (instance == nullptr || !instance->live) return misused(cudaErrorInvalidValue, "no graph");
  return enqueue("a graph", stream, [all = instance->work] {
    for (const Work& work : all) work();
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (graph == nullptr || !graph->live) return misused(cudaErrorInvalidValue, "no graph");
  graph->live = false;
  graph->work.clear();
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t instance) {
  if (instance == nullptr || !instance->live) return misused(cudaErrorInvalidValue, "no graph");
  instance->live = false;
  instance->work.clear();
  return cudaSuccess;
}

}  // extern "C"
