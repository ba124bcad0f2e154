// Which types there are, and what waits until a type is looked up.
#include "db/postgresql/protocol.h"

#include "wire/postgresql/values.h"

static VALUE mTypes, symbols[POSTGRESQL_KINDS];
static ID id_settle;

// ---- the server's own types

struct builtin {
    uint32_t oid;
    enum postgresql_kind kind;
    uint32_t element;
};

#define OF(kind)          POSTGRESQL_KIND_##kind
#define ARRAY_OF(element) POSTGRESQL_KIND_ARRAY, element

// pg_type.dat and pg_range.dat of the server's source, by OID.
static const struct builtin builtins[] = {
    {16, OF(BOOL), 0},            // bool
    {17, OF(BYTES), 0},           // bytea
    {18, OF(TEXT), 0},            // "char"
    {19, OF(TEXT), 0},            // name
    {20, OF(INT8), 0},            // int8
    {21, OF(INT2), 0},            // int2
    {22, ARRAY_OF(21)},           // int2vector
    {23, OF(INT4), 0},            // int4
    {24, OF(SERVER), 0},          // regproc
    {25, OF(TEXT), 0},            // text
    {26, OF(UINT4), 0},           // oid
    {27, OF(SERVER), 0},          // tid
    {28, OF(UINT4), 0},           // xid
    {29, OF(UINT4), 0},           // cid
    {30, ARRAY_OF(26)},           // oidvector
    {114, OF(JSON), 0},           // json
    {142, OF(TEXT), 0},           // xml
    {143, ARRAY_OF(142)},         // xml[]
    {194, OF(TEXT), 0},           // pg_node_tree
    {199, ARRAY_OF(114)},         // json[]
    {271, ARRAY_OF(5069)},        // xid8[]
    {600, OF(POINT), 0},          // point
    {601, OF(LSEG), 0},           // lseg
    {602, OF(PATH), 0},           // path
    {603, OF(BOX), 0},            // box
    {604, OF(POLYGON), 0},        // polygon
    {628, OF(LINE), 0},           // line
    {629, ARRAY_OF(628)},         // line[]
    {650, OF(INET), 0},           // cidr
    {651, ARRAY_OF(650)},         // cidr[]
    {700, OF(FLOAT4), 0},         // float4
    {701, OF(FLOAT8), 0},         // float8
    {705, OF(TEXT), 0},           // unknown
    {718, OF(CIRCLE), 0},         // circle
    {719, ARRAY_OF(718)},         // circle[]
    {774, OF(MACADDR), 0},        // macaddr8
    {775, ARRAY_OF(774)},         // macaddr8[]
    {790, OF(MONEY), 0},          // money
    {791, ARRAY_OF(790)},         // money[]
    {829, OF(MACADDR), 0},        // macaddr
    {869, OF(INET), 0},           // inet
    {1000, ARRAY_OF(16)},         // bool[]
    {1001, ARRAY_OF(17)},         // bytea[]
    {1002, ARRAY_OF(18)},         // "char"[]
    {1003, ARRAY_OF(19)},         // name[]
    {1005, ARRAY_OF(21)},         // int2[]
    {1006, ARRAY_OF(22)},         // int2vector[]
    {1007, ARRAY_OF(23)},         // int4[]
    {1008, ARRAY_OF(24)},         // regproc[]
    {1009, ARRAY_OF(25)},         // text[]
    {1010, ARRAY_OF(27)},         // tid[]
    {1011, ARRAY_OF(28)},         // xid[]
    {1012, ARRAY_OF(29)},         // cid[]
    {1013, ARRAY_OF(30)},         // oidvector[]
    {1014, ARRAY_OF(1042)},       // bpchar[]
    {1015, ARRAY_OF(1043)},       // varchar[]
    {1016, ARRAY_OF(20)},         // int8[]
    {1017, ARRAY_OF(600)},        // point[]
    {1018, ARRAY_OF(601)},        // lseg[]
    {1019, ARRAY_OF(602)},        // path[]
    {1020, ARRAY_OF(603)},        // box[]
    {1021, ARRAY_OF(700)},        // float4[]
    {1022, ARRAY_OF(701)},        // float8[]
    {1027, ARRAY_OF(604)},        // polygon[]
    {1028, ARRAY_OF(26)},         // oid[]
    {1040, ARRAY_OF(829)},        // macaddr[]
    {1041, ARRAY_OF(869)},        // inet[]
    {1042, OF(TEXT), 0},          // bpchar
    {1043, OF(TEXT), 0},          // varchar
    {1082, OF(DATE), 0},          // date
    {1083, OF(TIME), 0},          // time
    {1114, OF(TIMESTAMP), 0},     // timestamp
    {1115, ARRAY_OF(1114)},       // timestamp[]
    {1182, ARRAY_OF(1082)},       // date[]
    {1183, ARRAY_OF(1083)},       // time[]
    {1184, OF(TIMESTAMPTZ), 0},   // timestamptz
    {1185, ARRAY_OF(1184)},       // timestamptz[]
    {1186, OF(INTERVAL), 0},      // interval
    {1187, ARRAY_OF(1186)},       // interval[]
    {1231, ARRAY_OF(1700)},       // numeric[]
    {1263, ARRAY_OF(2275)},       // cstring[]
    {1266, OF(TIMETZ), 0},        // timetz
    {1270, ARRAY_OF(1266)},       // timetz[]
    {1560, OF(BITS), 0},          // bit
    {1561, ARRAY_OF(1560)},       // bit[]
    {1562, OF(BITS), 0},          // varbit
    {1563, ARRAY_OF(1562)},       // varbit[]
    {1700, OF(NUMERIC), 0},       // numeric
    {1790, OF(TEXT), 0},          // refcursor
    {2201, ARRAY_OF(1790)},       // refcursor[]
    {2249, OF(RECORD), 0},        // record
    {2275, OF(TEXT), 0},          // cstring
    {2278, OF(VOID), 0},          // void
    {2287, ARRAY_OF(2249)},       // record[]
    {2950, OF(UUID), 0},          // uuid
    {2951, ARRAY_OF(2950)},       // uuid[]
    {3220, OF(LSN), 0},           // pg_lsn
    {3221, ARRAY_OF(3220)},       // pg_lsn[]
    {3614, OF(TSVECTOR), 0},      // tsvector
    {3643, ARRAY_OF(3614)},       // tsvector[]
    {3802, OF(JSONB), 0},         // jsonb
    {3807, ARRAY_OF(3802)},       // jsonb[]
    {3904, OF(RANGE), 23},        // int4range
    {3905, ARRAY_OF(3904)},       // int4range[]
    {3906, OF(RANGE), 1700},      // numrange
    {3907, ARRAY_OF(3906)},       // numrange[]
    {3908, OF(RANGE), 1114},      // tsrange
    {3909, ARRAY_OF(3908)},       // tsrange[]
    {3910, OF(RANGE), 1184},      // tstzrange
    {3911, ARRAY_OF(3910)},       // tstzrange[]
    {3912, OF(RANGE), 1082},      // daterange
    {3913, ARRAY_OF(3912)},       // daterange[]
    {3926, OF(RANGE), 20},        // int8range
    {3927, ARRAY_OF(3926)},       // int8range[]
    {4072, OF(VERSIONED), 0},     // jsonpath
    {4073, ARRAY_OF(4072)},       // jsonpath[]
    {4451, OF(MULTIRANGE), 3904}, // int4multirange
    {4532, OF(MULTIRANGE), 3906}, // nummultirange
    {4533, OF(MULTIRANGE), 3908}, // tsmultirange
    {4534, OF(MULTIRANGE), 3910}, // tstzmultirange
    {4535, OF(MULTIRANGE), 3912}, // datemultirange
    {4536, OF(MULTIRANGE), 3926}, // int8multirange
    {5069, OF(UINT8), 0},         // xid8
    {6150, ARRAY_OF(4451)},       // int4multirange[]
    {6151, ARRAY_OF(4532)},       // nummultirange[]
    {6152, ARRAY_OF(4533)},       // tsmultirange[]
    {6153, ARRAY_OF(4534)},       // tstzmultirange[]
    {6155, ARRAY_OF(4535)},       // datemultirange[]
    {6157, ARRAY_OF(4536)},       // int8multirange[]
};

static const struct builtin *builtin_of(uint32_t oid)
{
    size_t low = 0, high = sizeof(builtins) / sizeof(*builtins);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (builtins[middle].oid == oid) return &builtins[middle];
        if (builtins[middle].oid < oid) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

struct postgresql_type postgresql_type_of(VALUE types, uint32_t oid)
{
    struct postgresql_type type = {.extra = Qnil, .convert = Qnil};
    if (!RHASH_EMPTY_P(types)) {
        VALUE entry = rb_hash_lookup2(types, UINT2NUM(oid), Qnil);
        if (!NIL_P(entry)) {
            type.kind = (enum postgresql_kind)FIX2INT(RARRAY_AREF(entry, 0));
            type.element = NUM2UINT(RARRAY_AREF(entry, 1));
            type.extra = RARRAY_AREF(entry, 2);
            type.convert = RARRAY_AREF(entry, 3);
            return type;
        }
    }
    const struct builtin *builtin = builtin_of(oid);
    if (builtin) {
        type.kind = builtin->kind;
        type.element = builtin->element;
    }
    return type;
}

// ---- symbols

static const char *const symbol_names[POSTGRESQL_KINDS] = {
    [POSTGRESQL_KIND_BOOL] = "boolean",
    [POSTGRESQL_KIND_INT2] = "integer",
    [POSTGRESQL_KIND_INT4] = "integer",
    [POSTGRESQL_KIND_INT8] = "integer",
    [POSTGRESQL_KIND_UINT4] = "integer",
    [POSTGRESQL_KIND_UINT8] = "integer",
    [POSTGRESQL_KIND_FLOAT4] = "float",
    [POSTGRESQL_KIND_FLOAT8] = "float",
    [POSTGRESQL_KIND_BYTES] = "bytes",
    [POSTGRESQL_KIND_UUID] = "uuid",
    [POSTGRESQL_KIND_JSON] = "json",
    [POSTGRESQL_KIND_JSONB] = "json",
    [POSTGRESQL_KIND_ENUM] = "enum",
    [POSTGRESQL_KIND_VOID] = "null",
    [POSTGRESQL_KIND_TIMESTAMP] = "datetime",
    [POSTGRESQL_KIND_TIMESTAMPTZ] = "datetime",
    [POSTGRESQL_KIND_BITS] = "bits",
    [POSTGRESQL_KIND_NUMERIC] = "decimal",
    [POSTGRESQL_KIND_MONEY] = "decimal",
    [POSTGRESQL_KIND_DATE] = "date",
    [POSTGRESQL_KIND_TIME] = "time",
    [POSTGRESQL_KIND_INTERVAL] = "interval",
    [POSTGRESQL_KIND_INET] = "inet",
    [POSTGRESQL_KIND_POINT] = "geometry",
    [POSTGRESQL_KIND_LINE] = "geometry",
    [POSTGRESQL_KIND_LSEG] = "geometry",
    [POSTGRESQL_KIND_BOX] = "geometry",
    [POSTGRESQL_KIND_PATH] = "geometry",
    [POSTGRESQL_KIND_POLYGON] = "geometry",
    [POSTGRESQL_KIND_CIRCLE] = "geometry",
    [POSTGRESQL_KIND_ARRAY] = "array",
    [POSTGRESQL_KIND_RANGE] = "range",
    [POSTGRESQL_KIND_MULTIRANGE] = "multirange",
    [POSTGRESQL_KIND_RECORD] = "composite",
    [POSTGRESQL_KIND_COMPOSITE] = "composite",
    [POSTGRESQL_KIND_HSTORE] = "hstore",
    [POSTGRESQL_KIND_VECTOR] = "vector",
};

VALUE postgresql_type_symbol(VALUE types, uint32_t oid)
{
    struct postgresql_type type = postgresql_type_of(types, oid);
    for (int i = 0; i < 8 && type.kind == POSTGRESQL_KIND_DOMAIN; i++)
        type = postgresql_type_of(types, type.element);
    return symbols[type.kind];
}

/* @api private protocol.type_symbol(oid) -> Symbol */
static VALUE type_symbol(VALUE self, VALUE oid)
{
    return postgresql_type_symbol(postgresql_protocol_of(self)->types, NUM2UINT(oid));
}

// ---- what waits

static void push(VALUE *list, VALUE value)
{
    if (NIL_P(*list)) *list = rb_ary_new();
    rb_ary_push(*list, value);
}

void postgresql_type_wanted(struct postgresql_protocol *protocol, uint32_t oid)
{
    if (NIL_P(protocol->unknown_types)) protocol->unknown_types = rb_hash_new();
    rb_hash_aset(protocol->unknown_types, UINT2NUM(oid), Qtrue);
}

VALUE postgresql_server_text(struct postgresql_protocol *protocol, uint32_t oid, VALUE bytes)
{
    VALUE key = rb_assoc_new(UINT2NUM(oid), bytes);
    if (!NIL_P(protocol->server_texts)) {
        VALUE text = rb_hash_lookup2(protocol->server_texts, key, Qundef);
        if (text != Qundef) return text;
    }
    push(&protocol->wanted_texts, key);
    return Qundef;
}

static VALUE taken(VALUE *list)
{
    VALUE value = NIL_P(*list) ? rb_ary_new() : *list;
    *list = Qnil;
    return value;
}

/* @api private protocol.unknown_types -> Array of Integer: OIDs that are to be looked up, since the last call */
static VALUE unknown_types(VALUE self)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    VALUE types = protocol->unknown_types;
    protocol->unknown_types = Qnil;
    return NIL_P(types) ? rb_ary_new() : rb_funcall(types, rb_intern("keys"), 0);
}

/* @api private protocol.wanted_texts -> Array of [oid, bytes] since the last call: the server is to be asked for them
 * */
static VALUE wanted_texts(VALUE self)
{
    return taken(&postgresql_protocol_of(self)->wanted_texts);
}

/* @api private protocol.server_texts = Hash of [oid, bytes] => text, or nil */
static VALUE set_server_texts(VALUE self, VALUE texts)
{
    if (!NIL_P(texts)) Check_Type(texts, T_HASH);
    postgresql_protocol_of(self)->server_texts = texts;
    return texts;
}

/* @api private protocol.know_type(oid, kind, element, extra, convert) */
static VALUE know_type(VALUE self, VALUE oid, VALUE kind, VALUE element, VALUE extra, VALUE convert)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    int number = NUM2INT(kind);
    if (number < 0 || number >= POSTGRESQL_KINDS) rb_raise(rb_eArgError, "there is no kind %d of types", number);
    NUM2UINT(element);
    VALUE fields[] = {INT2FIX(number), element, extra, convert};
    VALUE entry = rb_obj_freeze(rb_ary_new_from_values(4, fields));
    rb_hash_aset(protocol->types, UINT2NUM(NUM2UINT(oid)), entry);
    return self;
}

/* @api private protocol.type_of(oid) -> [kind, element] or nil, unless it is the server's own or was looked up */
static VALUE type_of(VALUE self, VALUE oid)
{
    struct postgresql_type type = postgresql_type_of(postgresql_protocol_of(self)->types, NUM2UINT(oid));
    return type.kind ? rb_assoc_new(INT2FIX(type.kind), UINT2NUM(type.element)) : Qnil;
}

/* @api private protocol.builtin_type(oid) -> [kind, element] or nil */
static VALUE builtin_type(VALUE self, VALUE oid)
{
    (void)self;
    const struct builtin *builtin = builtin_of(NUM2UINT(oid));
    return builtin ? rb_assoc_new(INT2FIX(builtin->kind), UINT2NUM(builtin->element)) : Qnil;
}

struct settling {
    VALUE self, waiting;
    struct postgresql_protocol *protocol;
    enum postgresql_state state;
    deadline_t before;
};

static VALUE settle(VALUE argument)
{
    const struct settling *settling = (const struct settling *)argument;
    return rb_funcall(mTypes, id_settle, 2, settling->self, settling->waiting);
}

static VALUE settled(VALUE argument)
{
    const struct settling *settling = (const struct settling *)argument;
    struct postgresql_protocol *protocol = settling->protocol;
    protocol->settling = false;
    if (!stream_is_closed(protocol->base.stream)) stream_bound(stream_of(protocol->base.stream), settling->before);
    postgresql_become(protocol, settling->state); // the queries here were about other portals
    protocol->unknown_types = protocol->wanted_texts = protocol->server_texts = protocol->waiting = Qnil;
    return Qnil;
}

void postgresql_settle(VALUE self, deadline_t until)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    if (protocol->settling || protocol->base.owed || stream_is_closed(protocol->base.stream)) return;
    if (NIL_P(protocol->unknown_types) && NIL_P(protocol->waiting)) return;
    protocol->settling = true;
    struct settling settling = {
        .self = self, .waiting = taken(&protocol->waiting), .protocol = protocol, .state = protocol->state};
    struct stream *stream = stream_of(protocol->base.stream);
    settling.before = stream_bound(stream, until);
    if (settling.before < until) stream_bound(stream, settling.before);
    rb_ensure(settle, (VALUE)&settling, settled, (VALUE)&settling);
    RB_GC_GUARD(settling.waiting);
}

void postgresql_types_define(void)
{
    id_settle = rb_intern("settle");
    for (int i = 0; i < POSTGRESQL_KINDS; i++)
        symbols[i] = ID2SYM(rb_intern(symbol_names[i] ? symbol_names[i] : "text"));
    VALUE protocol = postgresql_cProtocol;
    rb_define_method(protocol, "type_symbol", type_symbol, 1);
    rb_define_method(protocol, "unknown_types", unknown_types, 0);
    rb_define_method(protocol, "wanted_texts", wanted_texts, 0);
    rb_define_method(protocol, "server_texts=", set_server_texts, 1);
    rb_define_method(protocol, "know_type", know_type, 5);
    rb_define_method(protocol, "type_of", type_of, 1);
    rb_define_method(protocol, "builtin_type", builtin_type, 1);
    static const struct {
        const char *name;
        enum postgresql_kind kind;
    } kinds[] = {
        {"BOOL", POSTGRESQL_KIND_BOOL},
        {"INT2", POSTGRESQL_KIND_INT2},
        {"INT4", POSTGRESQL_KIND_INT4},
        {"INT8", POSTGRESQL_KIND_INT8},
        {"UINT4", POSTGRESQL_KIND_UINT4},
        {"UINT8", POSTGRESQL_KIND_UINT8},
        {"FLOAT4", POSTGRESQL_KIND_FLOAT4},
        {"FLOAT8", POSTGRESQL_KIND_FLOAT8},
        {"TEXT", POSTGRESQL_KIND_TEXT},
        {"BYTES", POSTGRESQL_KIND_BYTES},
        {"UUID", POSTGRESQL_KIND_UUID},
        {"JSON", POSTGRESQL_KIND_JSON},
        {"JSONB", POSTGRESQL_KIND_JSONB},
        {"VERSIONED", POSTGRESQL_KIND_VERSIONED},
        {"ENUM", POSTGRESQL_KIND_ENUM},
        {"VOID", POSTGRESQL_KIND_VOID},
        {"TIMESTAMPTZ", POSTGRESQL_KIND_TIMESTAMPTZ},
        {"TIMETZ", POSTGRESQL_KIND_TIMETZ},
        {"MACADDR", POSTGRESQL_KIND_MACADDR},
        {"BITS", POSTGRESQL_KIND_BITS},
        {"LSN", POSTGRESQL_KIND_LSN},
        {"TSVECTOR", POSTGRESQL_KIND_TSVECTOR},
        {"NUMERIC", POSTGRESQL_KIND_NUMERIC},
        {"DATE", POSTGRESQL_KIND_DATE},
        {"TIMESTAMP", POSTGRESQL_KIND_TIMESTAMP},
        {"TIME", POSTGRESQL_KIND_TIME},
        {"INTERVAL", POSTGRESQL_KIND_INTERVAL},
        {"INET", POSTGRESQL_KIND_INET},
        {"POINT", POSTGRESQL_KIND_POINT},
        {"LINE", POSTGRESQL_KIND_LINE},
        {"LSEG", POSTGRESQL_KIND_LSEG},
        {"BOX", POSTGRESQL_KIND_BOX},
        {"PATH", POSTGRESQL_KIND_PATH},
        {"POLYGON", POSTGRESQL_KIND_POLYGON},
        {"CIRCLE", POSTGRESQL_KIND_CIRCLE},
        {"ARRAY", POSTGRESQL_KIND_ARRAY},
        {"RANGE", POSTGRESQL_KIND_RANGE},
        {"MULTIRANGE", POSTGRESQL_KIND_MULTIRANGE},
        {"RECORD", POSTGRESQL_KIND_RECORD},
        {"COMPOSITE", POSTGRESQL_KIND_COMPOSITE},
        {"DOMAIN", POSTGRESQL_KIND_DOMAIN},
        {"HSTORE", POSTGRESQL_KIND_HSTORE},
        {"VECTOR", POSTGRESQL_KIND_VECTOR},
        {"MONEY", POSTGRESQL_KIND_MONEY},
        {"SERVER", POSTGRESQL_KIND_SERVER},
    };
    VALUE names = rb_hash_new();
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        rb_hash_aset(names, ID2SYM(rb_intern(kinds[i].name)), INT2FIX(kinds[i].kind));
    rb_const_set(protocol, rb_intern("KINDS"), rb_obj_freeze(names));
}

void postgresql_types_load_classes(void)
{
    mTypes = db_class("Heddle::DB::PostgreSQL::Types");
}
