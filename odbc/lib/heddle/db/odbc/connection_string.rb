# frozen_string_literal: true

module Heddle
  module DB
    module ODBC
      # Makes the connection string that SQLDriverConnect takes, of a URL and options:
      #
      # - <tt>odbc:DSN=shop;UID=ann</tt>: the text behind "odbc:" is the connection string
      # - <tt>odbc://ann:secret@host:5432/base?Driver=PostgreSQL</tt>: user, password, host, port and path become UID,
      #   PWD, SERVER, PORT and DATABASE; options of Heddle are taken out, each other keyword goes on as it is
      #
      # @api private
      class ConnectionString
        # Keywords that stand for options.
        KEYWORDS = {user: "UID", password: "PWD", database: "DATABASE"}.freeze
        PLACE = {host: "SERVER", port: "PORT"}.freeze
        # One pair of "Using Connection Strings" in the "ODBC Programmer's Reference": in braces a } is written }}.
        PAIR = /\G[\s;]*([^=;{}\s][^=;{}]*?)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;]*?)\s*(?:;|\z)/
        # What a value may not contain without braces.
        SPECIAL = /[\[\]{}(),;?*=!@]|\A\s|\s\z/
        EXAMPLES = "odbc:DSN=name;UID=user, odbc:Driver=…;Server=…, or odbc://user:password@host/base?Driver=…"
        private_constant :KEYWORDS, :PLACE, :PAIR, :SPECIAL, :EXAMPLES

        class << self
          # @param url [String, URI]
          # @param options [Hash{Symbol => Object}] as given to {DB.connect}
          # @return [Hash{Symbol => Object}] checked; +:string+ is a ConnectionString
          # @raise [ArgumentError]
          def settings(url, options)
            pairs, given = url.to_s.match?(%r{\Aodbc://}i) ? of_url(url) : [parse(url.to_s[5..]), {}]
            checked = Options.checked(given.merge(options), checks)
            KEYWORDS.each { |option, keyword| put(pairs, keyword, checked[option]) if checked[option] }
            checked.except(*KEYWORDS.keys).merge(string: new(pairs))
          end

          private

          def checks
            {user: :text, password: :text, database: :text, time_zone: :time_zone, encoding: method(:encoding)}
          end

          def of_url(url)
            parts = Address.options(url)
            pairs = parts.slice(*PLACE.keys).to_h { |part, value| [PLACE.fetch(part), value.to_s] }
            own = Options.names(checks)
            parts.except(*PLACE.keys, *own).each { |name, value| put(pairs, name.name, value) }
            [pairs, parts.slice(*own)]
          end

          def parse(text)
            pairs = {}
            position = 0
            while (match = PAIR.match(text, position))
              value = match[2]
              value = value[1..-2].gsub("}}", "}") if value.start_with?("{")
              put(pairs, match[1], value)
              position = match.end(0)
            end
            return pairs if pairs.any? && text[position..].match?(/\A[\s;]*\z/)

            raise ArgumentError, "the address of an ODBC connection is #{EXAMPLES}"
          end

          # Keywords are the same in any case.
          def put(pairs, keyword, value)
            raise ArgumentError, "the value of #{keyword} contains a NUL" if value.include?("\0")

            same = pairs.keys.find { |known| known.casecmp?(keyword) }
            pairs[same || keyword] = value
          end

          def encoding(name, value)
            value.nil? ? nil : Encoding.find(value)
          rescue ArgumentError, TypeError
            Options.wrong(name, "the name of an encoding, or nil", value)
          end
        end

        def initialize(pairs)
          @pairs = pairs
        end

        # @return [String] for the driver manager, with the password
        def secret
          @pairs.map { |keyword, value| "#{keyword}=#{braced(value)}" }.join(";")
        end

        # @return [String] which source of data, for messages
        def to_s
          shown = %w[DSN DRIVER SERVER DATABASE].filter_map do |keyword|
            @pairs.find { |known, _| known.casecmp?(keyword) }&.then { |_, value| "#{keyword}=#{value}" }
          end
          shown.join(";")
        end

        # Without the password.
        def inspect = "#<#{self.class} #{self}>"

        private

        def braced(value)
          value.match?(SPECIAL) ? "{#{value.gsub("}", "}}")}}" : value
        end
      end
    end
  end
end
