#include "cyclonedds_security.h"

#include <dlfcn.h>
#include <unistd.h>

namespace k8sdds {
namespace {

// The folder of the plugins: beside the library, or in Debian's folder below it. Empty: not installed.
std::string plugin_folder() {
    Dl_info info{};
    if (!dladdr(reinterpret_cast<void*>(&dds_create_participant), &info) || !info.dli_fname) return "";
    const std::string library = info.dli_fname;
    const std::string folder = library.substr(0, library.rfind('/') + 1);
    for (const char* below : {"libddsc0debian/", ""})
        if (access((folder + below + "libdds_security_auth.so").c_str(), R_OK) == 0) return folder + below;
    return "";
}

}  // namespace

std::string cyclone_refuse_security(const Security& security) {
    if (!security.on()) return "";
    // Its property for the length is not handed to the plugin, which then takes the longer one.
    if (security.key_bits != 256)
        return "-secureEncryptionAlgorithm: Cyclone DDS 0.10 always signs and encrypts with AES-256; give aes-256-gcm";
    return plugin_folder().empty() ? "-secureGovernanceFile: the DDS Security plugins of Cyclone DDS are not installed; install libddsc0debian"
                                   : "";
}

void cyclone_secure(dds_qos_t* qos, const Security& security) {
    if (!security.on()) return;
    const auto set = [&](const std::string& name, const std::string& value) {
        dds_qset_prop(qos, ("dds.sec." + name).c_str(), value.c_str());
    };
    const struct { const char *part, *file, *function; } plugins[] = {{"auth", "auth", "authentication"},
                                                                      {"crypto", "crypto", "crypto"},
                                                                      {"access", "ac", "access_control"}};
    for (const auto& [part, file, function] : plugins) {
        const std::string library = std::string(part) + ".library.";
        set(library + "path", plugin_folder() + "libdds_security_" + file + ".so");
        set(library + "init", std::string("init_") + function);
        set(library + "finalize", std::string("finalize_") + function);
    }
    set("auth.identity_ca", "file:" + security.identity_ca);
    set("auth.identity_certificate", "file:" + security.certificate);
    set("auth.private_key", "file:" + security.private_key);
    set("access.permissions_ca", "file:" + security.permissions_ca);
    set("access.governance", "file:" + security.governance);
    set("access.permissions", "file:" + security.permissions);
}

}  // namespace k8sdds
