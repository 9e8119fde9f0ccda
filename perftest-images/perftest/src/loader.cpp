#include "loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include "options.h"

namespace k8sdds {
namespace {

const std::string prefix = "libk8sdds-perftest-", suffix = ".so";

std::filesystem::path folder() {
    std::error_code ignored;
    return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

std::string list() {
    std::string names;
    for (const std::string& name : available_backends()) names += (names.empty() ? "" : ", ") + name;
    return names.empty() ? "none" : names;
}

}  // namespace

std::vector<std::string> available_backends() {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder(), ignored)) {
        const std::string file = entry.path().filename();
        if (file.size() > prefix.size() + suffix.size() && file.compare(0, prefix.size(), prefix) == 0 &&
            file.compare(file.size() - suffix.size(), suffix.size(), suffix) == 0)
            names.push_back(file.substr(prefix.size(), file.size() - prefix.size() - suffix.size()));
    }
    std::sort(names.begin(), names.end());
    return names;
}

std::unique_ptr<Backend> load_backend(const std::string& name) {
    const auto names = available_backends();
    if (std::find(names.begin(), names.end(), name) == names.end())
        throw UsageError("-middleware: no backend '" + name + "' in " + folder().string() + "; available: " + list());
    const std::string path = folder() / (prefix + name + suffix);
    void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!module)
        throw UsageError("-middleware: " + name + " cannot be loaded (" + dlerror() + "); install its libraries");
    const auto interface =
        reinterpret_cast<decltype(&k8sdds_backend_interface)>(dlsym(module, "k8sdds_backend_interface"));
    const auto create = reinterpret_cast<decltype(&k8sdds_backend_create)>(dlsym(module, "k8sdds_backend_create"));
    if (!interface || !create || interface() != backend_interface)
        throw UsageError("-middleware: " + path +
                         " was built from another version; install program and modules from one build");
    return std::unique_ptr<Backend>(create());
}

}  // namespace k8sdds
