"""C++ text around a candidate's function, so that it can be called with bytes, laid out as in `values`.

Two translation units, so that macros and names of the candidate do not reach the glue:

* the candidate's: `before`, which names the function's type (and includes the headers for it); the text;
  `after`, which stores the function's address. Any definition that the compiler takes for a function of that
  type will do: static, inline, overloaded, template.
* the glue's: `glue`, made from the signature alone. It exports jaxmarl_run and jaxmarl_release.

The candidate's text can still break out of this, by its own definition of these names, static constructors or
a wild pointer. Then it controls only the returned bytes, as it also could by returning a wrong answer.
"""

from __future__ import annotations

from .signature import Signature

ENTRY_FILE = "signature"  # the compiler's messages name it where the function does not fit

_BEFORE = """
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>
typedef {declaration};
"""

# The empty lines end a last line that has no end, or is to be continued.
_AFTER = """

#line 1 "{file}"
extern jaxmarl_function *const jaxmarl_entry;
jaxmarl_function *const jaxmarl_entry = &::{name};
"""

_GLUE = """
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

typedef {declaration};
extern jaxmarl_function *const jaxmarl_entry;

namespace {{

struct Reader {{
    const char *at, *end;
    const char *take(std::size_t size) {{
        if (size > static_cast<std::size_t>(end - at)) throw std::runtime_error("truncated arguments");
        at += size;
        return at - size;
    }}
}};

template <class T> struct Codec {{
    static T read(Reader &in) {{
        T value;
        std::memcpy(&value, in.take(sizeof value), sizeof value);
        return value;
    }}
    static void write(std::string &out, const T &value) {{
        out.append(reinterpret_cast<const char *>(&value), sizeof value);
    }}
}};

typedef Codec<std::uint64_t> Count;

template <> struct Codec<std::string> {{
    static std::string read(Reader &in) {{
        std::size_t size = Count::read(in);
        return std::string(in.take(size), size);
    }}
    static void write(std::string &out, const std::string &value) {{
        Count::write(out, value.size());
        out.append(value);
    }}
}};

template <class T> struct Codec<std::vector<T>> {{
    static std::vector<T> read(Reader &in) {{
        std::vector<T> values;
        std::size_t size = Count::read(in);
        values.reserve(size);
        for (std::size_t i = 0; i < size; ++i) values.push_back(Codec<T>::read(in));
        return values;
    }}
    static void write(std::string &out, const std::vector<T> &values) {{
        Count::write(out, values.size());
        for (const T &value : values) Codec<T>::write(out, value);
    }}
}};

template <class A, class B> struct Codec<std::pair<A, B>> {{
    static std::pair<A, B> read(Reader &in) {{
        A first = Codec<A>::read(in);
        B second = Codec<B>::read(in);
        return std::pair<A, B>(std::move(first), std::move(second));
    }}
    static void write(std::string &out, const std::pair<A, B> &value) {{
        Codec<A>::write(out, value.first);
        Codec<B>::write(out, value.second);
    }}
}};

std::string call(Reader &in) {{
    std::string out(1, 0);
{body}
    return out;
}}

std::string raised(char code, const std::exception &error) {{
    int status = 0;
    char *name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
    std::string text = std::string(name ? name : "std::exception") + ": " + error.what(), out(1, code);
    std::free(name);
    text.resize(text.size() < 500 ? text.size() : 500);
    Codec<std::string>::write(out, text);
    return out;
}}

std::string reply(Reader &in) {{
    try {{
        return call(in);
    }} catch (const std::bad_alloc &error) {{
        return raised(1, error);
    }} catch (const std::out_of_range &error) {{
        return raised(2, error);
    }} catch (const std::overflow_error &error) {{
        return raised(3, error);
    }} catch (const std::range_error &error) {{
        return raised(4, error);
    }} catch (const std::invalid_argument &error) {{
        return raised(4, error);
    }} catch (const std::domain_error &error) {{
        return raised(4, error);
    }} catch (const std::length_error &error) {{
        return raised(4, error);
    }} catch (const std::exception &error) {{
        return raised(5, error);
    }} catch (...) {{
        return raised(5, std::runtime_error("an exception that is no std::exception"));
    }}
}}

}}  // namespace

extern "C" int jaxmarl_run(const char *in, long long in_size, char **out, long long *out_size) {{
    try {{
        Reader reader = {{in, in + in_size}};
        std::string bytes = reply(reader);
        *out = static_cast<char *>(std::malloc(bytes.size()));
        if (!*out) return 1;
        std::memcpy(*out, bytes.data(), bytes.size());
        *out_size = static_cast<long long>(bytes.size());
        return 0;
    }} catch (...) {{  // no memory for the reply
        return 1;
    }}
}}

extern "C" void jaxmarl_release(char *out) {{ std::free(out); }}
"""


def before(signature: Signature) -> str:
    """What precedes the candidate's text, as a file of its own, so that line numbers stay right."""
    return _BEFORE.format(declaration=_declaration(signature))


def after(signature: Signature) -> str:
    """What follows the candidate's text: an error there means that it does not define the function."""
    return _AFTER.format(file=ENTRY_FILE, name=signature.name)


def glue(signature: Signature) -> str:
    """The second translation unit."""
    return _GLUE.format(declaration=_declaration(signature), body=_body(signature))


def _declaration(signature: Signature) -> str:
    """Declaration of the function's type, under the name jaxmarl_function."""
    return signature.cpp.replace(" (", " jaxmarl_function(", 1)


def _body(signature: Signature) -> str:
    """Read the arguments, call, write the result and what may have changed."""
    lines, passed = [], []
    for index, parameter in enumerate(signature.parameters):
        lines.append(f"{parameter.type.cpp} argument_{index} = Codec<{parameter.type.cpp}>::read(in);")
        move = parameter.passing == "value"
        passed.append(f"std::move(argument_{index})" if move else f"argument_{index}")
    called = f"jaxmarl_entry({', '.join(passed)})"
    lines.append(
        f"Codec<{signature.result.cpp}>::write(out, {called});" if signature.result else f"{called};"
    )
    for index, parameter in enumerate(signature.parameters):
        if parameter.passing == "reference":
            lines.append(f"Codec<{parameter.type.cpp}>::write(out, argument_{index});")
    return "\n".join(f"    {line}" for line in lines)
