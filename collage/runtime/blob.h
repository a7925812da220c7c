/*!
 * The blob of a partition, as engines in C++ read it: a JSON header and tensors (blob.py writes it, and says how).
 */
#ifndef COLLAGE_RUNTIME_BLOB_H_
#define COLLAGE_RUNTIME_BLOB_H_

#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace collage {
namespace ffi = tvm::ffi;
namespace json = tvm::ffi::json;

inline bool Has(const json::Object& object, const char* key) { return object.count(ffi::String(key)) > 0; }

inline ffi::Any Get(const json::Object& object, const char* key) {
  if (!Has(object, key)) TVM_FFI_THROW(ValueError) << "the blob's header has no \"" << key << "\"";
  return object.at(ffi::String(key));
}

inline int64_t Int(const json::Object& object, const char* key) { return Get(object, key).cast<int64_t>(); }
inline double Real(const json::Object& object, const char* key) { return Get(object, key).cast<double>(); }
inline bool Flag(const json::Object& object, const char* key) { return Get(object, key).cast<bool>(); }

inline std::string Text(const json::Object& object, const char* key) {
  ffi::String text = Get(object, key).cast<ffi::String>();
  return std::string(text.data(), text.size());
}

inline json::Object Child(const json::Object& object, const char* key) { return Get(object, key).cast<json::Object>(); }

inline std::vector<int64_t> Ints(const ffi::Any& list) {
  std::vector<int64_t> values;
  for (const ffi::Any& value : list.cast<json::Array>()) values.push_back(value.cast<int64_t>());
  return values;
}

inline std::vector<int64_t> Ints(const json::Object& object, const char* key) { return Ints(Get(object, key)); }

inline json::Object ParseObject(const std::string& text) {
  ffi::String error;
  ffi::Any value = json::Parse(ffi::String(text), &error);
  if (!error.empty()) TVM_FFI_THROW(ValueError) << "the header is not JSON: " << std::string(error.data(), error.size());
  return value.cast<json::Object>();
}

/*! The parts of a blob; it keeps no copy, so the bytes have to outlive it. */
class Blob {
 public:
  explicit Blob(const ffi::Bytes& bytes) {
    constexpr size_t kStart = 16, kAlignment = 256;
    const char* begin = bytes.data();
    if (bytes.size() < kStart || std::memcmp(begin, "CLGBLOB1", 8) != 0) {
      TVM_FFI_THROW(ValueError) << "not the blob of a partition";
    }
    uint64_t length;
    std::memcpy(&length, begin + 8, sizeof(length));
    if (length > bytes.size() - kStart) TVM_FFI_THROW(ValueError) << "the blob of a partition is truncated";
    text = std::string(begin + kStart, length);
    header = ParseObject(text);
    size_t data = (kStart + length + kAlignment - 1) / kAlignment * kAlignment;
    tensors_ = begin + data;
    for (const auto& [name, value] : Child(header, "tensors")) {
      json::Object entry = value.cast<json::Object>();
      size_t end = static_cast<size_t>(Int(entry, "offset")) + static_cast<size_t>(Int(entry, "bytes"));
      if (data > bytes.size() || end > bytes.size() - data) {
        TVM_FFI_THROW(ValueError) << "the blob of a partition is truncated";
      }
      if (end > size_) size_ = end;
    }
  }
  /*! All tensors, in one piece: `header["tensors"][name]["offset"]` says where each starts. */
  const char* data() const { return tensors_; }
  size_t size() const { return size_; }

  std::string text;
  json::Object header;

 private:
  const char* tensors_ = nullptr;
  size_t size_ = 0;
};

}  // namespace collage

#endif  // COLLAGE_RUNTIME_BLOB_H_
