# frozen_string_literal: true

module Heddle
  module NetHTTP
    module KeepAlive
      # What an OpenSSL::X509::Store trusts. open-uri, rest-client and Faraday make a store for each connection. Two
      # stores are equal if they were told the same files, folders and certificates from their beginning. A store that
      # was made before {Heddle::NetHTTP.keep_alive}, or was told anything else, equals only itself, until its next
      # change.
      module Trust
        # Prepended to OpenSSL::X509::Store. The hidden variable `told` is an Array of what the store was told, or else
        # a mark that is equal to nothing.
        module Record
          def initialize(...)
            KeepAlive.set_told(self, [])
            super
          end

          # The file is read at once, a folder when a certificate is verified.
          def add_file(path) = Trust.note(self, -> { [:file, File.path(path), FileStamp.of(path)] }) { super }

          def add_path(path) = Trust.note(self, -> { [:folder, File.path(path)] }) { super }

          def add_cert(certificate)
            Trust.note(self, -> { [:certificate, OpenSSL::Digest::SHA256.digest(certificate.to_der)] }) { super }
          end

          def set_default_paths
            file = ENV.fetch(OpenSSL::X509::DEFAULT_CERT_FILE_ENV, OpenSSL::X509::DEFAULT_CERT_FILE)
            folder = ENV.fetch(OpenSSL::X509::DEFAULT_CERT_DIR_ENV, OpenSSL::X509::DEFAULT_CERT_DIR)
            Trust.note(self, -> { [:default, file, FileStamp.of(file), folder] }) { super }
          end

          %i[add_crl flags= purpose= trust= time= verify_callback=].each do |name|
            module_eval(<<~RUBY, __FILE__, __LINE__ + 1)
              def #{name}(*)
                Trust.note(self) { super }
              end
            RUBY
          end
        end

        class << self
          # Stores that are made from here on are recorded.
          def watch
            OpenSSL::X509::Store.prepend(Record) unless OpenSSL::X509::Store < Record
          end

          # @return [Array] whose eql? is true if two stores trust the same now
          def of(store)
            told = KeepAlive.told(store) || store
            return [told] unless told.is_a?(Array)

            told + told.map { |kind, *, path| FileStamp.of(path) if %i[folder default].include?(kind) }
          end

          # The store is told something by the block.
          #
          # @param entry [Proc, nil] describes it before, and again afterwards: a file may be replaced just then
          def note(store, entry = nil)
            told = KeepAlive.told(store)
            KeepAlive.set_told(store, mark = Object.new) # if the block fails, or another thread changes the store
            before = entry&.call if told.is_a?(Array)
            yield.tap do
              known = before && before == entry.call && KeepAlive.told(store).equal?(mark)
              KeepAlive.set_told(store, [*told, before].freeze) if known
            end
          end
        end
      end
      private_constant :Trust
    end
  end
end
