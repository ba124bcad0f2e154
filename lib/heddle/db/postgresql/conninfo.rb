# frozen_string_literal: true

require "uri"
require_relative "../../core/without_password"

module Heddle
  module DB
    module PostgreSQL
      # Where and how to connect, in the two forms that libpq takes: a URL (with one host or several) and a String of
      # <tt>keyword=value</tt> pairs. From "Connection Strings" and "Parameter Key Words" of PostgreSQL's manual
      # (libpq). No error shows a password.
      #
      # @api private
      module Conninfo
        EXAMPLE = "postgresql://user:password@host/base"
        ENCODE = "write #{EXAMPLE}, with special characters of the password encoded: / as %2F, ? as %3F, # as %23, " \
          "@ as %40, % as %25; or \"host=… dbname=… user=… password='…'\""
        # As libpq reads it, the user ends at an "@" before the first "/". A raw "@" behind it would be a password's
        # that has a "/".
        URL = %r{
          \Apostgres(?:ql)?://(?:(?<user>[^:@/]*)(?::(?<password>[^@/]*))?@)?(?<hosts>[^@/?]*)
          (?:/(?<base>[^@?]*))?(?:\?(?<query>.*))?\z
        }imx
        HOST = /\A(?:\[(?<v6>[^\[\]]*)\]|(?<name>[^:\[\]]*))(?::(?<port>\d*))?\z/
        PAIR = /
          \G\s*(?<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*
          (?:'(?<quoted>(?:[^'\\]|\\.)*)'|(?<plain>(?!')(?:[^\s\\]|\\.)*))(?=\s|\z)
        /mx
        ALIASES = {dbname: :database, ssl: :tls}.freeze
        private_constant :EXAMPLE, :ENCODE, :URL, :HOST, :PAIR, :ALIASES

        class << self
          # @param text [String] a URL, or pairs
          # @return [Hash{Symbol => String}] options, named as {DB.connect} names them; several hosts or ports in one
          #   String, separated by commas
          # @raise [ArgumentError]
          def options(text)
            parts = url?(text) ? of_url(text) : of_pairs(text)
            parts.transform_keys { |name| ALIASES.fetch(name, name) }.reject { |_, value| value == "" }
          end

          private

          def url?(text) = text.match?(%r{\Apostgres(?:ql)?://}i)

          def of_url(text)
            found = URL.match(text) || refuse(text)
            hosts = found[:hosts].split(",", -1).map { |host| HOST.match(decode(host)) || refuse(text) }
            named = {user: found[:user], password: found[:password], database: found[:base]}.compact
            named.transform_values! { |value| decode(value) }
            named[:host] = hosts.map { |host| host[:v6] || host[:name] }.join(",")
            ports = hosts.map { |host| host[:port].to_s }
            named[:port] = ports.join(",") unless ports.all?(&:empty?)
            named.merge!(URI.decode_www_form(found[:query].to_s.gsub("+", "%2B")).to_h.transform_keys(&:to_sym))
          end

          def of_pairs(text)
            options, at = {}, 0
            while (found = PAIR.match(text, at))
              options[found[:name].to_sym] = (found[:quoted] || found[:plain]).gsub(/\\(.)/m, '\1')
              at = found.end(0)
            end
            return options if text[at..].strip.empty? && !options.empty?

            raise ArgumentError, "the connection string cannot be read from character #{at + 1} on: write " \
              "\"host=… dbname=…\", with values that have spaces in '…'", cause: nil
          end

          def decode(text)
            URI.decode_www_form_component(text.gsub("+", "%2B"))
          rescue ArgumentError
            raise ArgumentError, "the URL has a % without two digits behind it: #{ENCODE}", cause: nil
          end

          def refuse(text)
            raise ArgumentError, "#{WithoutPassword[text].inspect} is no URL of PostgreSQL: #{ENCODE}", cause: nil
          end
        end
      end
      private_constant :Conninfo
    end
  end
end
