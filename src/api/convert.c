#include "convert/convert.h"
#include "api/api.h"

bool millet_convert(const char *checkpoint, const char *out, const millet_convert_options *options,
                    char **summary, millet_error *error) {
    err e = {0};
    str text = {0};
    millet_convert_options o;
    if (summary) *summary = NULL;
    if (!api_struct_in(&o, sizeof o, options, "millet_convert_options", &e)) return api_done(error, &e);
    const convert_options c = {.preset = o.preset,
                               .precision = o.precision,
                               .state = o.state,
                               .context = o.context,
                               .top_k = o.top_k < 0    ? 0
                                        : o.top_k == 0 ? -1
                                                       : o.top_k,
                               .overwrite = o.overwrite,
                               .progress = o.progress,
                               .ctx = o.ctx};
    bool ok = convert_checkpoint(checkpoint, out, &c, summary ? &text : NULL, &e);
    str_adds(&text, ""); /* never NULL */
    if (summary && ok)
        *summary = text.s;
    else
        str_free(&text);
    return api_done(error, &e);
}
