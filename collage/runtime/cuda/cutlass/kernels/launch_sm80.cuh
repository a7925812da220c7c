/*!
 * Runs a device-level operator of CUTLASS 2.x.
 */
#pragma once

#include <cuda_runtime_api.h>

#include "cutlass/cutlass.h"

namespace collage_cutlass {

/*!
 * Null, or what went wrong. Initialising costs the processor less than a microsecond, and clears the flags by which
 * Stream-K's blocks wait.
 */
template <class Device>
char const* launch(Device& device, typename Device::Arguments const& arguments, void* workspace, void* stream) {
  auto const queue = static_cast<cudaStream_t>(stream);
  auto status = device.initialize(arguments, workspace, queue);
  if (status == cutlass::Status::kSuccess) status = device.run(queue);
  return status == cutlass::Status::kSuccess ? nullptr : cutlass::cutlassGetStatusString(status);
}

}  // namespace collage_cutlass
