#pragma once
// Functions of Open MPI, looked up when they are wanted (dlopen): no build and no program needs it,
// nothing is installed beside the program, and one program serves who has it and who has not. A
// plugin that is linked with libmpi would give the same with one more file to build, to pack and to
// find. Handles are addresses in Open MPI, of version 4 and 5 alike (libmpi.so.40); other MPIs have
// numbers instead, and are refused by what their library lacks.

#include "base/status.h"

namespace subbyte {

/// As mpi.h of Open MPI has them.
struct MpiLibrary {
  using Handle = void*;
  static constexpr int kSerialized = 2;  // calls of one thread at a time
  static constexpr int kAnySource = -1;

  /// Loads the library once. Code exchange.mpi says what to install.
  static Result<const MpiLibrary*> load();

  int (*init_thread)(int*, char***, int required, int* provided) = nullptr;
  int (*finalize)() = nullptr;
  int (*comm_rank)(Handle comm, int* rank) = nullptr;
  int (*comm_size)(Handle comm, int* size) = nullptr;
  int (*comm_set_errhandler)(Handle comm, Handle handler) = nullptr;
  int (*error_string)(int error, char* text, int* length) = nullptr;
  int (*iallgather)(const void* from, int count, Handle type, void* to, int to_count,
                    Handle to_type, Handle comm, Handle* request) = nullptr;
  int (*igather)(const void* from, int count, Handle type, void* to, int to_count, Handle to_type,
                 int root, Handle comm, Handle* request) = nullptr;
  int (*ialltoallv)(const void* from, const int* counts, const int* offsets, Handle type, void* to,
                    const int* to_counts, const int* to_offsets, Handle to_type, Handle comm,
                    Handle* request) = nullptr;
  int (*iallgatherv)(const void* from, int count, Handle type, void* to, const int* to_counts,
                     const int* to_offsets, Handle to_type, Handle comm, Handle* request) = nullptr;
  int (*ibcast)(void* bytes, int count, Handle type, int root, Handle comm,
                Handle* request) = nullptr;
  int (*ibarrier)(Handle comm, Handle* request) = nullptr;
  int (*isend)(const void* from, int count, Handle type, int rank, int tag, Handle comm,
               Handle* request) = nullptr;
  int (*irecv)(void* to, int count, Handle type, int rank, int tag, Handle comm,
               Handle* request) = nullptr;
  int (*test)(Handle* request, int* is_done, void* status) = nullptr;

  Handle world = nullptr;
  Handle byte = nullptr;
  Handle real = nullptr;  // 32 bits
  Handle errors_return = nullptr;
};

}  // namespace subbyte
