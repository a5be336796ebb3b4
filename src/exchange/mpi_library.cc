#include "exchange/mpi_library.h"

#include <dlfcn.h>

#include <string>

namespace subbyte {
namespace {

constexpr const char* kLibrary = "libmpi.so.40";

class Lookup {
 public:
  explicit Lookup(void* library) : library_(library) {}

  template <class T>
  void operator()(T*& place, const char* name) {
    place = reinterpret_cast<T*>(dlsym(library_, name));
    if (place == nullptr && missing_ == nullptr) missing_ = name;
  }

  /// The first name that the library lacks.
  const char* missing() const { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

Result<const MpiLibrary*> look_up() {
  // Its components look for its functions among those of the program.
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return Error{"exchange.mpi",
                 std::string("tensor parallelism under mpirun needs Open MPI, and ") + kLibrary +
                     " is not here: apt-get install openmpi-bin"};
  }
  static MpiLibrary mpi;
  Lookup find(library);
  find(mpi.init_thread, "MPI_Init_thread");
  find(mpi.finalize, "MPI_Finalize");
  find(mpi.comm_rank, "MPI_Comm_rank");
  find(mpi.comm_size, "MPI_Comm_size");
  find(mpi.comm_set_errhandler, "MPI_Comm_set_errhandler");
  find(mpi.error_string, "MPI_Error_string");
  find(mpi.iallgather, "MPI_Iallgather");
  find(mpi.igather, "MPI_Igather");
  find(mpi.ialltoallv, "MPI_Ialltoallv");
  find(mpi.iallgatherv, "MPI_Iallgatherv");
  find(mpi.ibcast, "MPI_Ibcast");
  find(mpi.ibarrier, "MPI_Ibarrier");
  find(mpi.isend, "MPI_Isend");
  find(mpi.irecv, "MPI_Irecv");
  find(mpi.test, "MPI_Test");
  find(mpi.world, "ompi_mpi_comm_world");
  find(mpi.byte, "ompi_mpi_byte");
  find(mpi.real, "ompi_mpi_float");
  find(mpi.errors_return, "ompi_mpi_errors_return");
  if (find.missing() == nullptr) return &mpi;
  return Error{"exchange.mpi",
               std::string(kLibrary) + " is not that of Open MPI: it lacks " + find.missing()};
}

}  // namespace

Result<const MpiLibrary*> MpiLibrary::load() {
  static const Result<const MpiLibrary*> loaded = look_up();
  return loaded;
}

}  // namespace subbyte
