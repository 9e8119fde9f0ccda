#include "credentials.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/pkcs7.h>
#include <openssl/x509_vfy.h>
#include <sys/stat.h>
#include <tinyxml2.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>
#include <sstream>

namespace k8sdds {
namespace {

// Frees OpenSSL objects.
template <auto release>
struct Release {
    template <typename T>
    void operator()(T* object) const { release(object); }
};
using Bio = std::unique_ptr<BIO, Release<BIO_free>>;
using Certificate = std::unique_ptr<X509, Release<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Release<EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, Release<X509_STORE_free>>;
using Signed = std::unique_ptr<PKCS7, Release<PKCS7_free>>;

const std::string create_new = "; create new credentials: k8sdds security init DIR";

// A file of DDS Security and the option that names it.
struct File {
    const char* option;
    const std::string& path;

    [[noreturn]] void fail(const std::string& why) const {
        ERR_clear_error();
        throw UsageError(std::string(option) + ": " + path + " " + why);
    }
    Bio open() const {
        Bio bio(BIO_new_file(path.c_str(), "r"));
        if (!bio) throw UsageError(std::string(option) + ": cannot read '" + path + "'; give another file");
        return bio;
    }
};

// A device or a pipe may never end.
bool is_readable(const std::string& path) {
    constexpr off_t max_bytes = 1 << 20;
    struct stat status{};
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= max_bytes &&
           access(path.c_str(), R_OK) == 0;
}

std::string utc(const ASN1_TIME* time) {
    std::tm parts{};
    char text[40] = "an unknown time";
    if (ASN1_TIME_to_tm(time, &parts)) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
    return text;
}

Certificate certificate_of(const File& file) {
    const Bio bio = file.open();
    Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (!certificate) file.fail("is not a PEM certificate; give another file");
    if (X509_cmp_current_time(X509_get0_notBefore(certificate.get())) > 0)
        file.fail("is not valid before " + utc(X509_get0_notBefore(certificate.get())) + "; check this host's clock");
    if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0)
        file.fail("has expired on " + utc(X509_get0_notAfter(certificate.get())) + create_new);
    return certificate;
}

// Returns the subject in RFC 2253 order, which DDS Security requires: CN=pub0,O=k8sdds.
std::string subject_of(X509* certificate) {
    const Bio bio(BIO_new(BIO_s_mem()));
    X509_NAME_print_ex(bio.get(), X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB);
    char* text = nullptr;
    const long length = BIO_get_mem_data(bio.get(), &text);
    return {text, static_cast<size_t>(length)};
}

void check_key(const File& file, X509* certificate, const std::string& certificate_path) {
    struct stat status{};
    if (stat(file.path.c_str(), &status) == 0 && (status.st_mode & 077) != 0) {
        char mode[8];
        std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(status.st_mode & 07777));
        file.fail(std::string("is a private key that other users may read (mode ") + mode + "); run chmod 600 on it");
    }
    const Bio bio = file.open();
    const auto no_password = [](char*, int, int, void*) { return 0; };
    const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
    if (!key) file.fail("is not a PEM private key without a password; give another file");
    if (X509_check_private_key(certificate, key.get()) != 1)
        file.fail("does not belong to the certificate " + certificate_path + "; give a matching pair");
}

// Returns a store with all certificates of the file. Their validity periods are checked elsewhere.
Store store_of(const File& file) {
    Store store(X509_STORE_new());
    const Bio bio = file.open();
    while (Certificate certificate{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)})
        X509_STORE_add_cert(store.get(), certificate.get());
    ERR_clear_error();
    X509_STORE_set_flags(store.get(), X509_V_FLAG_NO_CHECK_TIME | X509_V_FLAG_PARTIAL_CHAIN);
    return store;
}

void check_issued(const File& file, X509* certificate, const File& authority) {
    const Store store = store_of(authority);
    const std::unique_ptr<X509_STORE_CTX, Release<X509_STORE_CTX_free>> context(X509_STORE_CTX_new());
    X509_STORE_CTX_init(context.get(), store.get(), certificate, nullptr);
    if (X509_verify_cert(context.get()) != 1)
        file.fail("was not issued by " + authority.path + " of " + authority.option + "; give files of one authority");
}

// Returns the document in an S/MIME file after verifying the signature of the authority.
std::string document_of(const File& file, const File& authority) {
    const Bio bio = file.open();
    BIO* content = nullptr;
    const Signed signed_document(SMIME_read_PKCS7(bio.get(), &content));
    const Bio content_owner(content);
    if (!signed_document) file.fail("is not an S/MIME signed document; give another file");
    const Bio text(BIO_new(BIO_s_mem()));
    const Store store = store_of(authority);
    if (PKCS7_verify(signed_document.get(), nullptr, store.get(), content, text.get(), PKCS7_TEXT) != 1)
        file.fail("was not signed by " + authority.path + " of " + authority.option +
                  ", or was modified after signing; give files of one authority");
    char* data = nullptr;
    const long length = BIO_get_mem_data(text.get(), &data);
    return {data, static_cast<size_t>(length)};
}

// Splits a subject name at its commas.
std::vector<std::string> parts_of(const std::string& subject) {
    std::vector<std::string> parts;
    std::istringstream text(subject);
    for (std::string part; std::getline(text, part, ',');) {
        const size_t first = part.find_first_not_of(" \t\n"), last = part.find_last_not_of(" \t\n");
        parts.push_back(first == std::string::npos ? "" : part.substr(first, last - first + 1));
    }
    return parts;
}

std::string text_of(const tinyxml2::XMLElement* parent, const char* name) {
    const tinyxml2::XMLElement* child = parent ? parent->FirstChildElement(name) : nullptr;
    return child && child->GetText() ? child->GetText() : "";
}

std::string now_utc() {
    const std::time_t now = std::time(nullptr);
    char text[24];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", std::gmtime(&now));
    return text;
}

// Checks that the permissions contain a valid grant for the subject. With require_order the grant's subject name must have
// its parts in the same order.
void check_permissions(const File& file, const std::string& xml, const std::string& subject, bool require_order) {
    tinyxml2::XMLDocument document;
    document.Parse(xml.data(), xml.size());
    const tinyxml2::XMLElement* root = document.FirstChildElement("dds");
    root = root ? root->FirstChildElement("permissions") : nullptr;
    if (!root) file.fail("does not contain permissions; give another file");
    const std::vector<std::string> expected = parts_of(subject);
    std::vector<std::string> sorted = expected;
    std::sort(sorted.begin(), sorted.end());
    std::string others;
    for (const auto* grant = root->FirstChildElement("grant"); grant; grant = grant->NextSiblingElement("grant")) {
        const std::string name = text_of(grant, "subject_name");
        std::vector<std::string> parts = parts_of(name);
        const bool ordered = parts == expected;
        std::sort(parts.begin(), parts.end());
        if (parts != sorted) {
            others += (others.empty() ? "" : "; ") + name;
            continue;
        }
        if (require_order && !ordered)
            file.fail("names '" + name + "', but the middleware requires RFC 2253 order: '" + subject + "'" + create_new);
        const auto* validity = grant->FirstChildElement("validity");
        const std::string from = text_of(validity, "not_before"), until = text_of(validity, "not_after");
        if (!from.empty() && now_utc() < from.substr(0, 19))
            file.fail("is not valid before " + from + "; check this host's clock");
        if (!until.empty() && until.substr(0, 19) <= now_utc()) file.fail("has expired on " + until + create_new);
        return;
    }
    file.fail("has no grant for '" + subject + "' of -secureCertFile, only for: " + (others.empty() ? "nothing" : others) +
              "; give the permissions of this participant");
}

}  // namespace

void check_security(const Options& options, bool require_order) {
    const File governance{"-secureGovernanceFile", options.secure_governance};
    const File permissions{"-securePermissionsFile", options.secure_permissions};
    const File identity_ca{"-secureCertAuthority", options.secure_authority};
    const File own_certificate{"-secureCertFile", options.secure_certificate};
    const File key{"-securePrivateKey", options.secure_key};
    const bool separate = !options.secure_permissions_authority.empty();
    const File permissions_ca{separate ? "-securePermissionsAuthority" : "-secureCertAuthority",
                              separate ? options.secure_permissions_authority : options.secure_authority};

    const char *given = nullptr, *missing = nullptr;
    for (const File* file : {&governance, &permissions, &identity_ca, &own_certificate, &key})
        (file->path.empty() ? missing : given) = file->option;
    for (const char* name : {"-securePermissionsAuthority", "-secureEncryptionAlgorithm"})
        if (options.was_given(name) && !given) given = name;
    if (!given) return;
    if (missing) throw UsageError(std::string(missing) + ": is required with " + given + "; give its file");
    for (const File* file : {&governance, &permissions, &identity_ca, &own_certificate, &key, &permissions_ca})
        if (!is_readable(file->path))
            throw UsageError(std::string(file->option) + ": cannot read '" + file->path + "'; give another file");

    certificate_of(identity_ca);
    certificate_of(permissions_ca);
    const Certificate own = certificate_of(own_certificate);
    check_issued(own_certificate, own.get(), identity_ca);
    check_key(key, own.get(), own_certificate.path);
    document_of(governance, permissions_ca);
    check_permissions(permissions, document_of(permissions, permissions_ca), subject_of(own.get()),
                      require_order);
}

}  // namespace k8sdds
