# frozen_string_literal: true

module Heddle
  module DB
    module PostgreSQL
      # What the text of a COPY says about the form of its data. From "COPY" of PostgreSQL's manual: a list in
      # parentheses, or the words of servers before 9.0.
      #
      # @api private
      class CopyOptions
        NAMES = %w[delimiter null quote escape encoding].freeze
        ESCAPES = {"b" => "\b", "f" => "\f", "n" => "\n", "r" => "\r", "t" => "\t"}.freeze
        STRING = /\A(?:[eEuU]&?)?'|\A\$/
        # In front of a column, of "force not null a, b" and "force quote a, b".
        COLUMN = /\A(?:,|null|quote)\z/i
        OFF = /\A'?(?:false|off|0)'?\z/i
        UTF8 = /\A(?:utf-?8|unicode)\z/i
        private_constant :NAMES, :ESCAPES, :STRING, :COLUMN, :OFF, :UTF8

        # @param protocol [Protocol]
        # @param sql [String]
        # @return [Hash{Symbol => Object}] format: (:text, :csv, :binary, or one of newer servers), and delimiter:,
        #   null:, quote:, escape: if the statement has them, encoding: unless it is UTF-8, and header:
        # @raise [ArgumentError] for a value that cannot be read: rows in another form than the server expects would
        #   be read as other rows
        def self.of(protocol, sql) = new(protocol.copy_options(sql), protocol.backslashes?).options

        # @return [Hash{Symbol => Object}]
        attr_reader :options

        # @param backslashes [Boolean] whether they are active in '…'
        def initialize(tokens, backslashes)
          @options = {format: :text}
          @backslashes = backslashes
          # The condition of a WHERE is about rows.
          tokens = tokens.take_while { |token| token != ";" && !token.casecmp?("where") }
          list = tokens.index("(") || tokens.size
          read_words(tokens.first(list))
          read_list(tokens.drop(list + 1))
          @options.delete(:encoding) if @options[:encoding]&.match?(UTF8)
        end

        private

        # "csv delimiter as ';' null ''".
        def read_words(tokens)
          tokens.each_with_index do |token, index|
            name = token.downcase.delete_suffix("s") # "using delimiters ';'" came first
            @options[:format] = :csv if name == "csv"
            @options[:header] = true if name == "header" && !COLUMN.match?(tokens[index - 1])
            @options[:format] = :binary if name == "binary" && @options[:format] == :text # else it is a column
            next unless NAMES.include?(name)

            value = index + (tokens[index + 1]&.casecmp?("as") ? 2 : 1)
            next unless tokens[value]&.match?(STRING) # the columns of "force not null"

            unreadable(name) if tokens[value + 1]&.match?(STRING)
            @options[name.to_sym] = text(name, tokens[value])
          end
        end

        # "format csv, delimiter ';', force_null (a, b))".
        def read_list(tokens)
          items(tokens).each do |name, *value|
            name = word(name)
            @options[:header] = true if name == "header" && !(value.one? && value.first.match?(OFF))
            next unless NAMES.include?(name) || name == "format"

            unreadable(name) unless value.size == 1
            value = text(name, value.first)
            next @options[name.to_sym] = value unless name == "format"

            @options[:format] = value.to_sym unless value == "text"
          end
        end

        # Each item's tokens, without what is in further parentheses: names of columns.
        def items(tokens)
          depth = 0
          tokens.each_with_object([[]]) do |token, items|
            case token
            when "(" then depth += 1
            when ")" then depth -= 1
            when "," then items << [] if depth == 0
            else items.last << token if depth == 0
            end
          end.reject(&:empty?)
        end

        def word(token) = token.start_with?("\"") ? token[1..-2].gsub("\"\"", "\"") : token.downcase

        # Of a string, or of a word or number that stands for one.
        def text(name, token)
          case token
          when /\A'(.*)'\z/m then @backslashes ? unescaped($1.gsub("''", "'")) : $1.gsub("''", "'")
          when /\A[eE]'(.*)'\z/m then unescaped($1.gsub("''", "'"))
          when /\A(\$\w*\$)(.*)\1\z/m then $2
          when STRING then unreadable(name)
          else word(token)
          end
        end

        def unescaped(text)
          text.gsub(/\\(?:x(\h{1,2})|([0-7]{1,3})|(.))/m) do
            next $1.hex.chr if $1
            next $2.oct.chr if $2

            ESCAPES.fetch($3, $3)
          end
        end

        def unreadable(name)
          raise ArgumentError, "the #{name} of this COPY cannot be read: write its value as one string, '…' or E'…'"
        end
      end
      private_constant :CopyOptions
    end
  end
end
