# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # Looks up the types whose OIDs differ between databases (enums, composites, domains, types of extensions), and
      # completes the values that wait for them. Each connection keeps what it learned.
      #
      # @api private
      module Types
        # Values are nested that deep, at most, before something is wrong.
        ROUNDS = 64
        # How many values the server is asked for at once.
        TEXTS = 1000
        KINDS = Protocol::KINDS
        MONEY = 790

        # Binary forms that the server writes and does not read, with their types, and their texts: tsquery without
        # words.
        UNREADABLE = {[3615, "\0\0\0\0".b.freeze].freeze => ""}.freeze

        # Extensions' types whose binary forms are known, by their functions.
        SEND_FUNCTIONS = {
          "array_send" => :ARRAY, "textsend" => :TEXT, "varcharsend" => :TEXT, "bpcharsend" => :TEXT,
          "citextsend" => :TEXT, "unknownsend" => :TEXT, "ltree_send" => :VERSIONED, "lquery_send" => :VERSIONED,
          "ltxtq_send" => :VERSIONED, "hstore_send" => :HSTORE, "vector_send" => :VECTOR
        }.freeze

        # Names of the server's own types, as they are registered.
        BUILTIN = {
          "bool" => 16, "boolean" => 16, "bytea" => 17, "int8" => 20, "bigint" => 20, "int2" => 21, "smallint" => 21,
          "int4" => 23, "integer" => 23, "text" => 25, "oid" => 26, "json" => 114, "xml" => 142, "point" => 600,
          "lseg" => 601, "path" => 602, "box" => 603, "polygon" => 604, "line" => 628, "cidr" => 650, "float4" => 700,
          "real" => 700, "float8" => 701, "double precision" => 701, "circle" => 718, "macaddr8" => 774,
          "money" => 790, "macaddr" => 829, "inet" => 869, "bpchar" => 1042, "varchar" => 1043, "date" => 1082,
          "time" => 1083, "timestamp" => 1114, "timestamptz" => 1184, "interval" => 1186, "timetz" => 1266,
          "bit" => 1560, "varbit" => 1562, "numeric" => 1700, "decimal" => 1700, "uuid" => 2950, "pg_lsn" => 3220,
          "tsvector" => 3614, "jsonb" => 3802, "jsonpath" => 4072, "int4range" => 3904, "numrange" => 3906,
          "tsrange" => 3908, "tstzrange" => 3910, "daterange" => 3912, "int8range" => 3926
        }.freeze
        private_constant :ROUNDS, :TEXTS, :KINDS, :MONEY, :UNREADABLE, :SEND_FUNCTIONS, :BUILTIN

        CATALOGUE = <<~SQL
          select t.oid, n.nspname::text, t.typname::text, t.typtype::text, s.proname::text,
            case t.typtype
              when 'd' then t.typbasetype
              when 'r' then (select r.rngsubtype from pg_catalog.pg_range r where r.rngtypid = t.oid)
              %s
              else t.typelem
            end,
            array(select a.attname::text from pg_catalog.pg_attribute a
              where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped order by a.attnum)
          from pg_catalog.pg_type t
            join pg_catalog.pg_namespace n on n.oid = t.typnamespace
            left join pg_catalog.pg_proc s on s.oid = t.typsend
          where t.oid = any(?::pg_catalog.oid[])
        SQL
        # Servers have multiranges since 14.
        MULTIRANGES = "when 'm' then (select r.rngtypid from pg_catalog.pg_range r where r.rngmultitypid = t.oid)"
        private_constant :CATALOGUE, :MULTIRANGES

        @decoders = {}.freeze
        @encoders = {}.freeze
        @lock = Mutex.new

        class << self
          # @return [Hash{Class => #call}]
          attr_reader :encoders

          # @see PostgreSQL.register_type
          def register(name, decode, encode)
            @lock.synchronize do
              @decoders = @decoders.merge(name => decode).freeze if decode
              @encoders = @encoders.merge(encode).freeze
            end
          end

          # Tells a new connection what programs registered for the server's own types.
          def prepare(protocol)
            @decoders.each do |name, decode|
              oid = name.is_a?(Integer) ? name : BUILTIN[name.delete_prefix("pg_catalog.")]
              kind, element = protocol.builtin_type(oid) if oid
              protocol.know_type(oid, kind, element, nil, decode) if kind
            end
          end

          # Looks up types, and the types of their elements, as far as they are not known.
          #
          # @param oids [Array<Integer>]
          # @raise [ServerError]
          def know(protocol, oids)
            seen = {}
            until oids.empty?
              oids.each { |oid| seen[oid] = true }
              look_up(protocol, oids.reject { |oid| protocol.type_of(oid) })
              oids = oids.map { |oid| protocol.type_of(oid)[1] }.uniq.reject { |oid| oid == 0 || seen[oid] }
            end
          end

          # Looks once whether the database has the extension hstore: a Hash is JSON in all others.
          def hstore?(protocol)
            known = protocol.instance_variable_get(:@hstore)
            return known unless known.nil? && !protocol.failed?

            found = rows(protocol, "select count(*) from pg_catalog.pg_type where typname = 'hstore'", [])[0][0] > 0
            protocol.instance_variable_set(:@hstore, found)
          end

          # @return [Array<Integer>] a type that is known, and those in it
          def within(protocol, oid)
            found = []
            until oid.nil? || oid == 0 || found.include?(oid)
              found << oid
              oid = protocol.type_of(oid)&.last
            end
            found
          end

          # @param waiting [Array<(Array, Integer, Integer, String)>] rows, with the indices, OIDs and bytes of values
          #   that they lack
          # @raise [ServerError, TransactionError]
          def settle(protocol, waiting)
            if protocol.failed?
              return if waiting.empty?

              raise TransactionError, "the types of a result's values cannot be looked up: a later statement of the " \
                "transaction failed"
            end
            ROUNDS.times do
              look_up(protocol, protocol.unknown_types)
              protocol.server_texts = texts(protocol, protocol.wanted_texts)
              waiting = waiting.reject { |value| protocol.settle_value(value) }
              return if waiting.empty?
            end
            raise ProtocolError, "the server describes types that contain themselves"
          end

          private

          def look_up(protocol, oids)
            return if oids.empty?

            multiranges = (protocol.settings.fetch("server_version", "").to_i >= 14) ? MULTIRANGES : ""
            found = rows(protocol, format(CATALOGUE, multiranges), ["{#{oids.join(",")}}"])
            found.each do |oid, schema, name, type, function, element, fields|
              kind = kind_of(type, function)
              decode = @decoders[oid] || @decoders["#{schema}.#{name}"] || @decoders[name]
              protocol.know_type(oid, KINDS.fetch(kind), element, ((kind == :COMPOSITE) ? fields.freeze : nil), decode)
            end
            (oids - found.map(&:first)).each { |oid| protocol.know_type(oid, KINDS[:SERVER], 0, nil, @decoders[oid]) }
          end

          def kind_of(type, function)
            case type
            when "e" then :ENUM
            when "d" then :DOMAIN
            when "r" then :RANGE
            when "m" then :MULTIRANGE
            when "c" then :COMPOSITE
            else SEND_FUNCTIONS.fetch(function, :SERVER)
            end
          end

          # @param wanted [Array<(Integer, String)>] OIDs, and values in their binary forms
          # @return [Hash{(Integer, String) => String}]
          def texts(protocol, wanted)
            (wanted.uniq - UNREADABLE.keys).each_slice(TEXTS).with_object(UNREADABLE.dup) do |slice, found|
              list = slice.map { |oid, _| (oid == MONEY) ? "?::pg_catalog.numeric::text" : "?::text" }.join(", ")
              arguments = slice.map { |oid, bytes| Parameters::Binary.new(oid, bytes) }
              found.merge!(slice.zip(rows(protocol, "select array[#{list}]", arguments)[0][0]).to_h)
            end
          end

          def rows(protocol, sql, arguments)
            result = protocol.run_own(sql, arguments)
            raise result if result.is_a?(ServerError)

            result.rows
          end
        end
      end
      private_constant :Types

      # Registers how values of a type become Ruby objects, and how those are bound, for connections that are opened
      # afterwards.
      #
      # @example
      #   require "heddle/db/postgresql"
      #
      #   Heddle::DB::PostgreSQL.register_type("color", decode: :to_sym.to_proc)
      #   Heddle::DB::PostgreSQL.register_type("money_amount",
      #     decode: ->(fields) { Money.new(fields["cents"], fields["currency"]) },
      #     encode: {Money => ->(money) { "(#{money.cents},#{money.currency})" }})
      #
      # @param name [String, Integer] the type's name, with or without its schema, or its OID. Arrays, ranges and
      #   composites of it follow by themselves. Not a domain: the server describes a column by the type behind it
      # @param decode [#call, nil] gets the value that the type has without it (for a type that Heddle does not know the
      #   server's text), never nil; its result is the value
      # @param encode [Hash{Class => #call}, nil] for a class of arguments what makes a value to bind of each: a String
      #   for the text that the server reads, or any other value that can be bound
      # @return [nil]
      # @raise [ArgumentError, TypeError]
      def self.register_type(name, decode: nil, encode: nil)
        unless name.is_a?(String) || name.is_a?(Integer)
          raise TypeError, "a type is registered by its name, a String, or by its OID, an Integer: not #{name.inspect}"
        end
        raise ArgumentError, "register_type needs decode:, encode: or both" unless decode || encode
        unless decode.nil? || decode.respond_to?(:call)
          raise TypeError, "decode: must have a method call, as a Proc has, not #{decode.inspect}"
        end

        encode ||= {}
        unless encode.is_a?(Hash) && encode.all? { |klass, call| klass.is_a?(Module) && call.respond_to?(:call) }
          raise TypeError, "encode: must be a Hash of classes, each with something that has a method call"
        end

        Types.register(name.is_a?(String) ? name.dup.freeze : name, decode, encode)
        nil
      end
    end
  end
end
