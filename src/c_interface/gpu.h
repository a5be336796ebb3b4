#pragma once
// What several functions do where a handle or an operand is of a GPU.

#include <subbyte/subbyte.h>
#include <initializer_list>
#include <memory>
#include <vector>

#include "base/status.h"
#include "c_interface/errors.h"
#include "c_interface/tensors.h"
#include "device/packed_matrix.h"

namespace subbyte::c {

/// Code c.argument for the first address that leads to a GPU: the host cannot read there.
Status check_on_host(std::initializer_list<NamedAddress> addresses);

/// Checks that an address that is not NULL leads to memory of that GPU: anything else would end the
/// process's work there. Code c.argument.
Status check_on_gpu(const NamedAddress& address, int device);

/// The GPU that all addresses lead to, or -1 where none leads to one. Code c.argument.
Result<int> common_device(std::initializer_list<NamedAddress> addresses);

/// Copies bytes of any machine to the host, and waits for the stream. Codes: cuda.device,
/// cuda.copy.
Status fetch(std::byte* to, const void* from, int64_t bytes, int device, void* stream);

/// The packed matrix of an operand of aten whose tensors lie on a GPU. The stream is waited for.
/// Codes: layout.*, cuda.*.
Result<std::shared_ptr<const device::PackedMatrix>> import_int4pack(const Int4Operand& operand,
                                                                    const device::Gpu& gpu,
                                                                    Executor& host);
/// Tensors of aten's operand in memory of that GPU. The stream is waited for. Codes: layout.*,
/// cuda.*.
Status export_int4pack(const device::PackedMatrix& matrix, const Int4Target& target,
                       const device::Gpu& gpu, std::vector<subbyte_tensors::Tensor>& to);

}  // namespace subbyte::c
