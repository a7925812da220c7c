/*!
 * A stand-in for the routines of cuDNN that are older than graphs, on host memory: pooling and softmax over channels.
 */
#ifndef COLLAGE_TESTS_EMULATION_CUDNN_H_
#define COLLAGE_TESTS_EMULATION_CUDNN_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#define CUDNN_MAJOR 9

enum cudnnStatus_t { CUDNN_STATUS_SUCCESS = 0, CUDNN_STATUS_BAD_PARAM = 2000 };
enum cudnnDataType_t { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_HALF = 2, CUDNN_DATA_BFLOAT16 = 9 };
enum cudnnPoolingMode_t {
  CUDNN_POOLING_MAX = 0,
  CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING = 1,
  CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING = 2
};
enum cudnnNanPropagation_t { CUDNN_PROPAGATE_NAN = 1 };
enum cudnnSoftmaxAlgorithm_t { CUDNN_SOFTMAX_ACCURATE = 1 };
enum cudnnSoftmaxMode_t { CUDNN_SOFTMAX_MODE_CHANNEL = 1 };

struct EmulatedCudnn {};
struct EmulatedTensor {
  cudnnDataType_t type;
  std::vector<int> dims, strides;
};
struct EmulatedPooling {
  cudnnPoolingMode_t mode;
  std::vector<int> window, padding, stride;
};
using cudnnHandle_t = EmulatedCudnn*;
using cudnnTensorDescriptor_t = EmulatedTensor*;
using cudnnPoolingDescriptor_t = EmulatedPooling*;

inline const char* cudnnGetErrorString(cudnnStatus_t) { return "CUDNN_STATUS_BAD_PARAM"; }
inline size_t cudnnGetVersion() { return 92800; }
inline cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new EmulatedCudnn();
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t) {
  return handle == nullptr ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* made) {
  *made = new EmulatedTensor();
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  delete descriptor;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t descriptor, cudnnDataType_t type, int count,
                                                const int* dims, const int* strides) {
  if (count < 4) return CUDNN_STATUS_BAD_PARAM;
  *descriptor = {type, {dims, dims + count}, {strides, strides + count}};
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* made) {
  *made = new EmulatedPooling();
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t descriptor) {
  delete descriptor;
  return CUDNN_STATUS_SUCCESS;
}
inline cudnnStatus_t cudnnSetPoolingNdDescriptor(cudnnPoolingDescriptor_t descriptor, cudnnPoolingMode_t mode,
                                                 cudnnNanPropagation_t, int count, const int* window, const int* padding,
                                                 const int* stride) {
  *descriptor = {mode, {window, window + count}, {padding, padding + count}, {stride, stride + count}};
  return CUDNN_STATUS_SUCCESS;
}

/*! The elements of a tensor of the routines, by index. */
struct EmulatedElements {
  const EmulatedTensor& tensor;
  void* memory;

  int64_t Offset(const std::vector<int>& at) const {
    int64_t offset = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) offset += int64_t{at[axis]} * tensor.strides[axis];
    return offset;
  }
  double Read(const std::vector<int>& at) const {
    if (tensor.type == CUDNN_DATA_FLOAT) return static_cast<float*>(memory)[Offset(at)];
    return static_cast<double>(static_cast<_Float16*>(memory)[Offset(at)]);
  }
  void Write(const std::vector<int>& at, double value) const {
    if (tensor.type == CUDNN_DATA_FLOAT) {
      static_cast<float*>(memory)[Offset(at)] = static_cast<float>(value);
    } else {
      static_cast<_Float16*>(memory)[Offset(at)] = static_cast<_Float16>(value);
    }
  }
};

/*! The next index of a box, in row-major order; false after the last one. */
inline bool EmulatedNext(const std::vector<int>& dims, std::vector<int>* at) {
  for (size_t axis = dims.size(); axis-- > 0;) {
    if (++(*at)[axis] < dims[axis]) return true;
    (*at)[axis] = 0;
  }
  return false;
}

inline cudnnStatus_t cudnnPoolingForward(cudnnHandle_t, cudnnPoolingDescriptor_t pooling, const void*, cudnnTensorDescriptor_t x,
                                         const void* from, const void*, cudnnTensorDescriptor_t y, void* to) {
  if (x->type == CUDNN_DATA_BFLOAT16 || x->type != y->type) return CUDNN_STATUS_BAD_PARAM;
  for (size_t i = 0; i < pooling->window.size(); ++i) {
    int padded = x->dims[i + 2] + 2 * pooling->padding[i];
    if ((padded - pooling->window[i]) / pooling->stride[i] + 1 != y->dims[i + 2]) return CUDNN_STATUS_BAD_PARAM;
  }
  EmulatedElements source{*x, const_cast<void*>(from)}, target{*y, to};
  std::vector<int> at(y->dims.size(), 0);
  do {
    double sum = 0, greatest = -INFINITY;
    int inside = 0, all = 0;
    std::vector<int> tap(pooling->window.size(), 0);
    do {
      std::vector<int> place = at;
      bool padding = false;
      for (size_t i = 0; i < tap.size(); ++i) {
        place[i + 2] = at[i + 2] * pooling->stride[i] - pooling->padding[i] + tap[i];
        padding = padding || place[i + 2] < 0 || place[i + 2] >= x->dims[i + 2];
      }
      ++all;
      if (padding) continue;
      ++inside;
      sum += source.Read(place);
      greatest = std::max(greatest, source.Read(place));
    } while (EmulatedNext(pooling->window, &tap));
    int count = pooling->mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING ? inside : all;
    target.Write(at, pooling->mode == CUDNN_POOLING_MAX ? greatest : sum / count);
  } while (EmulatedNext(y->dims, &at));
  return CUDNN_STATUS_SUCCESS;
}

inline cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t, cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t, const void*,
                                         cudnnTensorDescriptor_t x, const void* from, const void*, cudnnTensorDescriptor_t y,
                                         void* to) {
  if (x->type == CUDNN_DATA_BFLOAT16 || x->type != y->type || x->dims != y->dims) return CUDNN_STATUS_BAD_PARAM;
  EmulatedElements source{*x, const_cast<void*>(from)}, target{*y, to};
  std::vector<int> rows = x->dims, row(x->dims.size(), 0);
  int columns = rows[1];
  rows[1] = 1;
  do {
    std::vector<int> at = row;
    double greatest = -INFINITY, sum = 0;
    for (at[1] = 0; at[1] < columns; ++at[1]) greatest = std::max(greatest, source.Read(at));
    for (at[1] = 0; at[1] < columns; ++at[1]) sum += std::exp(source.Read(at) - greatest);
    for (at[1] = 0; at[1] < columns; ++at[1]) target.Write(at, std::exp(source.Read(at) - greatest) / sum);
  } while (EmulatedNext(rows, &row));
  return CUDNN_STATUS_SUCCESS;
}

#endif  // COLLAGE_TESTS_EMULATION_CUDNN_H_
