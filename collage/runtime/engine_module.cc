/*!
 * The part of a compiled model that carries what other libraries run: a serialisable module of (symbol, blob) pairs and a
 * metadata string. TVM stores it inside the exported library; when that is loaded, each symbol becomes the function that the
 * registered engine makes of its blob (`collage.runtime.create_engine`, see collage/runtime/engines). The pool of threads that
 * kernels and engines run on comes along (thread_pool.h).
 *
 * The object file is linked into every exported model, so that a machine without a compiler can load it. Several models, and
 * the tuning process itself, may hold a copy: the first one registers, and exported libraries are linked with -z nodelete.
 */
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "thread_pool.h"

namespace collage {
namespace ffi = tvm::ffi;

constexpr const char* kKind = "collage_engine_v1";

struct Entry {
  std::string symbol, engine, options, blob;
};

class EngineModuleObj : public ffi::ModuleObj {
 public:
  EngineModuleObj(std::string metadata, std::vector<Entry> entries, bool loaded)
      : metadata_(std::move(metadata)), entries_(std::move(entries)), loaded_(loaded) {}

  const char* kind() const final { return kKind; }

  int GetPropertyMask() const final { return ffi::Module::kBinarySerializable | ffi::Module::kRunnable; }

  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final {
    std::string key(name.data(), name.size());
    if (key == "collage_metadata") {
      if (metadata_.empty()) return std::nullopt;
      std::string text = metadata_;
      return ffi::Function::FromTyped([text]() { return ffi::String(text); });
    }
    auto found = functions_.find(key);
    if (found != functions_.end()) return found->second;
    for (Entry& entry : entries_) {
      if (entry.symbol != key) continue;
      ffi::Function create = ffi::Function::GetGlobalRequired("collage.runtime.create_engine");
      // The engine takes the blob when it reads it: weights are large, and who waits here would keep another copy. A loaded
      // model is not saved again, so it gives its own away.
      ffi::Function take = ffi::Function::FromTyped(
          [&entry, this]() { return loaded_ ? ffi::Bytes(std::move(entry.blob)) : ffi::Bytes(entry.blob); });
      ffi::Function run = create(ffi::String(entry.engine), take, ffi::String(entry.options)).cast<ffi::Function>();
      functions_.emplace(key, run);
      return run;
    }
    return std::nullopt;
  }

  bool ImplementsFunction(const ffi::String& name) final {
    std::string key(name.data(), name.size());
    if (key == "collage_metadata") return !metadata_.empty();
    for (const Entry& entry : entries_) {
      if (entry.symbol == key) return true;
    }
    return false;
  }

  ffi::Bytes SaveToBytes() const final {
    if (loaded_ && !functions_.empty()) TVM_FFI_THROW(RuntimeError) << "a loaded model cannot be saved again: copy its file";
    size_t size = metadata_.size() + 2 * sizeof(uint64_t);
    for (const Entry& entry : entries_) {
      size += entry.symbol.size() + entry.engine.size() + entry.options.size() + entry.blob.size() + 4 * sizeof(uint64_t);
    }
    std::string out;
    out.reserve(size);  // or else weights are copied each time that it grows
    Put(&out, metadata_);
    uint64_t count = entries_.size();
    out.append(reinterpret_cast<const char*>(&count), sizeof(count));
    for (const Entry& entry : entries_) {
      Put(&out, entry.symbol);
      Put(&out, entry.engine);
      Put(&out, entry.options);
      Put(&out, entry.blob);
    }
    return ffi::Bytes(std::move(out));
  }

  static ffi::Module Create(ffi::String metadata, ffi::Array<ffi::String> symbols, ffi::Array<ffi::String> engines,
                            ffi::Array<ffi::String> options, ffi::Array<ffi::Bytes> blobs) {
    std::vector<Entry> entries;
    for (size_t i = 0; i < symbols.size(); ++i) {
      entries.push_back({Str(symbols[i]), Str(engines[i]), Str(options[i]), std::string(blobs[i].data(), blobs[i].size())});
    }
    return ffi::Module(ffi::make_object<EngineModuleObj>(Str(metadata), std::move(entries), false));
  }

  static ffi::Module LoadFromBytes(ffi::Bytes bytes) {
    const char* at = bytes.data();
    const char* end = at + bytes.size();
    std::string metadata = Get(&at, end);
    uint64_t count = GetCount(&at, end);
    std::vector<Entry> entries;
    for (uint64_t i = 0; i < count; ++i) {
      Entry entry;
      entry.symbol = Get(&at, end);
      entry.engine = Get(&at, end);
      entry.options = Get(&at, end);
      entry.blob = Get(&at, end);
      entries.push_back(std::move(entry));
    }
    return ffi::Module(ffi::make_object<EngineModuleObj>(std::move(metadata), std::move(entries), true));
  }

 private:
  static std::string Str(const ffi::String& s) { return std::string(s.data(), s.size()); }

  static void Put(std::string* out, const std::string& field) {
    uint64_t size = field.size();
    out->append(reinterpret_cast<const char*>(&size), sizeof(size));
    out->append(field);
  }

  static uint64_t GetCount(const char** at, const char* end) {
    uint64_t value;
    if (end - *at < static_cast<std::ptrdiff_t>(sizeof(value))) {
      TVM_FFI_THROW(ValueError) << "the compiled model is truncated";
    }
    std::memcpy(&value, *at, sizeof(value));
    *at += sizeof(value);
    return value;
  }

  static std::string Get(const char** at, const char* end) {
    uint64_t size = GetCount(at, end);
    if (size > static_cast<uint64_t>(end - *at)) TVM_FFI_THROW(ValueError) << "the compiled model is truncated";
    std::string field(*at, size);
    *at += size;
    return field;
  }

  std::string metadata_;
  std::vector<Entry> entries_;
  bool loaded_;
  std::map<std::string, ffi::Function> functions_;
};

static void RegisterModules() {
  const std::string loader = std::string("ffi.Module.load_from_bytes.") + kKind;
  if (ffi::Function::GetGlobal(loader).has_value()) return;
  namespace refl = tvm::ffi::reflection;
  refl::GlobalDef()
      .def(loader.c_str(), EngineModuleObj::LoadFromBytes)
      .def("collage.runtime.engine_module", EngineModuleObj::Create);
}

static void RegisterThreads() {
  if (ffi::Function::GetGlobal(kParallelCalls).has_value()) return;
  static const ParallelCalls calls{threads::Launch, threads::Wait};
  tvm::ffi::reflection::GlobalDef().def(kParallelCalls, [] { return reinterpret_cast<int64_t>(&calls); });
  auto launch = reinterpret_cast<void*>(calls.launch), barrier = reinterpret_cast<void*>(calls.barrier);
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvModRegisterContextSymbol("__TVMBackendParallelLaunch", launch));
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvModRegisterContextSymbol("__TVMBackendParallelBarrier", barrier));
}

/*! Its symbol is what compiled models are known by (library_file.py). */
void Register() {
  RegisterModules();
  RegisterThreads();
}

}  // namespace collage

TVM_FFI_STATIC_INIT_BLOCK() { collage::Register(); }
